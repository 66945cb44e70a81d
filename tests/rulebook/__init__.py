"""Which test asserts which numbered rule (docs/rules.md, docs/field-cases.md)."""
