"""
Connecting, in the order in which a user goes through it: `start`, `link`, `callback`, and `confirm`.

A callback's way: `exchange` (on record, then sent), `hold`, `identity`, `install`; `late_grants` is what came too late,
`brokers` is where no code is exchanged. `connecting` and `browser` hold what several of them share. What a crash leaves
behind is said at each step; the numbers are the transactions.
"""
