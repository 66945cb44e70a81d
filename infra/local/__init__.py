"""
The local stack: one supervisor that runs the product of ``template.yaml`` on this machine.

Start with `supervisor.py`; `stack.py` is the way in for tests and the demonstration, ``python -m infra.local`` for a
person.
"""
