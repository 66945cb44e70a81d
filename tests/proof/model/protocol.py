"""
The custody protocol as atomic steps over a small world, and the judge that looks at every state and step.

A step is one conditional write or transaction, one strongly consistent read that a later write relies on, one
provider call, or one application hook. What a transaction reads and holds its writes to is one step with them;
a read on which a *later* write relies is a step of its own. `custody_model.py` searches all of it.
"""

from typing import NamedTuple

# --------------------------------------------------------------------------------------------------------------------
# Items of the table, and the provider's ledger.
# --------------------------------------------------------------------------------------------------------------------


class Conn(NamedTuple):
    state: str = "new"  # new authorizing ready needs stopped revoked
    gen: int = 0


class Grant(NamedTuple):
    gen: int
    family: int  # the exchange that made it; the pre-allocated revocation id follows from it
    tv: int
    token: int
    lease: int | None = None  # process id of the refresher
    record: tuple = ()  # unresolved refresh attempts
    strays: bool = False


class Exchange(NamedTuple):
    gen: int
    outcome: str = "open"  # open installed cleanup unconfirmed ended
    over: bool = False  # the answer window while empty, confirm_by once held
    acked: bool = False
    tainted: bool = False  # a revocation in reach was sent since it began
    slow: bool = False  # the sender gave up, the request may still arrive until the window ends


class Rev(NamedTuple):
    state: str  # held pending parked | confirmed expired unreadable unconfirmed
    family: int
    tokens: tuple  # sealed material; empty when terminal
    succ: tuple = ()  # refresh attempts whose successor is still expected
    lost: bool = False  # an expected successor timed out
    lease: int | None = None  # sweep worker
    lease_over: bool = False
    deadline_over: bool = False
    acked: bool = False
    woken: bool = False
    saved: int | None = None  # on a stop's item: fingerprint of the newest saved token


class Bar(NamedTuple):
    inflight: int | None = None
    owed: tuple = ()  # revocation ids, and UNCONFIRMED + exchange id
    purges: tuple = ()  # stops whose purge is open


class Token(NamedTuple):
    family: int
    status: str  # alive spent revoked
    attested: bool = False  # a removal notice naming it was acknowledged after it was issued


class State(NamedTuple):
    deleted: tuple  # per owner
    conns: tuple
    grants: tuple
    exchanges: tuple
    revs: tuple
    bars: tuple  # per owner
    ledger: tuple
    procs: tuple
    purges: tuple = ()  # stops whose purge is open, those of deleted owners included


UNCONFIRMED = 100
TERMINAL = ("confirmed", "expired", "unreadable", "unconfirmed")
NOTICE = ("expired", "unreadable", "unconfirmed")


def put(items: tuple, index: int, value) -> tuple:
    return (*items[:index], value, *items[index + 1 :])


def add(ids: tuple, *more) -> tuple:
    return tuple(sorted(set(ids) | set(more)))


def without(ids: tuple, *gone) -> tuple:
    return tuple(i for i in ids if i not in gone)


class Config(NamedTuple):
    text: str
    procs: tuple  # (kind, argument, ...)
    owner_of: tuple = (0,)  # per connection
    exchanges: tuple = (0,)  # connection of each exchange; ready connections own the first exchanges
    ready: int = 0  # how many connections start with a live grant
    policy: str = "rotating"  # static rotating reuse grace
    reach: str = "family"  # token family authorization account
    confirm: bool = False  # owner confirmation on
    deadlines: bool = True
    restart: bool = False  # a start may supersede an authorizing connection
    outage: bool = False  # keys may be unavailable at a stop
    compaction: bool = False
    skew: bool = False  # the installer's clock is slow: it never sees the exchange's end
    ambiguous: bool = False  # hold, install and save may be applied although the caller sees an error
    purge: bool = False  # a stop owes the app the purge of what it derived
    queued: bool = False  # connection 0 starts stopped with its revocation due


class Step(NamedTuple):
    label: str
    state: State
    bad: str | None = None
    rank: int | None = None  # recovery order; None: not part of recovery


# --------------------------------------------------------------------------------------------------------------------
# The model
# --------------------------------------------------------------------------------------------------------------------


class Model:
    def __init__(self, config: Config, rules: frozenset):
        self.c, self.on = config, rules
        self.nx = len(config.exchanges)
        self.attempts = [i for i, p in enumerate(config.procs) if p[0] == "refresh"]
        self.attempt_no = {i: n for n, i in enumerate(self.attempts)}
        self.readers = [i for i, p in enumerate(config.procs) if p[0] == "handout"]
        self.wide = config.reach in ("authorization", "account")
        self._killable = {}

    # Revocation ids: hold of exchange x -> x; stop of family x -> nx + x; orphan of attempt a -> 2 nx + a; the token that
    # attempt a replaced -> 2 nx + attempts + a. Tokens: of exchange x -> x; of attempt a -> nx + a.
    def stop_rev(self, family):
        return self.nx + family

    def orphan_rev(self, pid):
        return 2 * self.nx + self.attempt_no[pid]

    def attempt_token(self, pid):
        return self.nx + self.attempt_no[pid]

    def conn_of(self, family):
        return self.c.exchanges[family]

    def stop_id(self, c, gen):
        return 10 * c + gen

    def owner_of(self, family):
        return self.c.owner_of[self.conn_of(family)]

    def initial(self) -> State:
        c, n_tokens = self.c, self.nx + len(self.attempts)
        owners = max(c.owner_of) + 1
        conns = tuple(Conn("ready", 1) if i < c.ready else Conn() for i in range(len(c.owner_of)))
        grants = tuple(Grant(1, i, 1, i) if i < c.ready else None for i in range(len(c.owner_of)))
        exchanges = tuple(Exchange(1, "installed") if x < c.ready else None for x in range(self.nx))
        ledger = tuple(Token(t, "alive") if t < c.ready else None for t in range(n_tokens))
        start = {
            "callback": "start",
            "confirm": "install",
            "refresh": "lease",
            "disconnect": "see",
            "delete": "fence",
            "sweep": "idle",
            "handout": "first",
            "purge": "ask",
        }
        procs = tuple((start[p[0]], False) if p[0] == "refresh" else (start[p[0]], *p[2:]) for p in c.procs)
        revs = (None,) * (2 * self.nx + 2 * len(self.attempts))
        state = State((False,) * owners, conns, grants, exchanges, revs, (Bar(),) * owners, ledger, procs)
        return self.stop_grant(state, 0, "stopped", None) if c.queued else state

    # -- provider --------------------------------------------------------------------------------------------------

    def reaches(self, ledger, token) -> set:
        """Ids of the tokens that die when *token* is revoked now."""
        tok = ledger[token]
        if self.c.reach == "account":
            return {t for t, k in enumerate(ledger) if k}
        if tok is None or tok.status != "alive":
            return set()  # RFC 7009: an unknown or spent token is answered with 200 and nothing happens
        if self.c.reach == "token":
            return {token}
        return {t for t, k in enumerate(ledger) if k and (self.wide or k.family == tok.family)}

    def kill(self, ledger, token):
        dead = self.reaches(ledger, token)
        return tuple(
            k._replace(status="revoked") if t in dead and k.status == "alive" else k for t, k in enumerate(ledger)
        )

    def provider_refresh(self, ledger, token, pid):
        """(ledger afterwards, token returned or None when refused)."""
        tok, new = ledger[token], self.attempt_token(pid)
        if tok.status == "alive":
            if self.c.policy == "static":
                return ledger, token
            old = tok if self.c.policy == "grace" else tok._replace(status="spent")
            return put(put(ledger, token, old), new, Token(tok.family, "alive")), new
        if self.c.policy == "reuse" and tok.status == "spent":
            ledger = tuple(
                k._replace(status="revoked") if k and k.family == tok.family and k.status == "alive" else k
                for k in ledger
            )
        return ledger, None

    # -- what the table says -----------------------------------------------------------------------------------------

    def blocks(self, s, ident, rules=True) -> bool:
        """Whether an id in a barrier still blocks; resolved by reading the item it names."""
        if ident >= UNCONFIRMED:
            e = s.exchanges[ident - UNCONFIRMED]
            return e.outcome == "unconfirmed" and not e.acked
        r = s.revs[ident]
        if r is None:
            return self.c.compaction  # F-17: a missing item counts as expired, and there is nothing to acknowledge
        if r.state in ("confirmed", "parked"):
            return False
        if r.state in ("held", "pending"):
            return not (r.acked and rules and "ack_terminal" not in self.on)
        return not r.acked

    def truly_blocked(self, s, owner, x, woken=False) -> bool:
        """The barrier judged from all items instead of the barrier item (oracle of I-9)."""
        for r, rev in enumerate(s.revs):
            if (
                rev
                and r != x
                and self.owner_of(rev.family) == owner
                and (woken or not rev.woken)
                and self.blocks(s, r, False)
            ):
                return True
        if any(self.c.owner_of[stop // 10] == owner for stop in s.purges):
            return True
        return any(
            e and y != x and self.owner_of(y) == owner and (e.outcome == "open" or self.blocks(s, UNCONFIRMED + y))
            for y, e in enumerate(s.exchanges)
        )

    def reaches_live(self, s, rev) -> bool:
        """Whether revoking *rev* would end a grant that is live now, as the account item shows it."""
        if self.c.reach == "token":
            return False
        return any(g and (self.wide or g.family == rev.family) for g in s.grants)

    def bar(self, s, owner, **change):
        return s._replace(bars=put(s.bars, owner, s.bars[owner]._replace(**change)))

    def queue(self, s, rid, rev):
        """Put a revocation that nothing may refuse, and the owner's barrier with it."""
        owner = self.owner_of(rev.family)
        s = s._replace(revs=put(s.revs, rid, rev))
        return self.bar(s, owner, owed=add(s.bars[owner].owed, rid))

    def stop_grant(self, s, c, to, without_attempt, seen=None, unreadable=False):
        """One transaction: fence, connection, grant and its revoke-only material. No provider, no key."""
        conn, grant = s.conns[c], seen or s.grants[c]
        s = s._replace(conns=put(s.conns, c, Conn(to, conn.gen + 1)), grants=put(s.grants, c, None))
        if self.c.purge and to == "stopped":  # a loss keeps the app's data, and a deleted owner's barrier is left alone
            owner, stop = self.c.owner_of[c], self.stop_id(c, conn.gen)
            s = s._replace(purges=add(s.purges, stop))
            if not s.deleted[owner]:
                s = self.bar(s, owner, purges=add(s.bars[owner].purges, stop))
        if grant is None:
            return s
        succ = without(grant.record, without_attempt) if "successor_flag" in self.on else ()
        rev = (
            Rev("unreadable", grant.family, ())
            if unreadable
            else Rev(
                "pending",
                grant.family,
                (grant.token,),
                succ,
                grant.strays,
                saved=grant.token if self.c.ambiguous else None,
            )
        )
        return self.queue(s, self.stop_rev(grant.family), rev)

    # -- steps -------------------------------------------------------------------------------------------------------

    def steps(self, s):
        if not self.readers:
            yield from self.all_steps(s)
            return
        for step in self.all_steps(s):  # a reader in mid-call remembers every token that was allowed since it began
            t = step.state
            for pid in self.readers:
                pc, *local = t.procs[pid]
                if pc in ("fence", "grant"):
                    t = self.go(t, pid, pc, add(local[0], *self.allowed(t, self.c.procs[pid][1])), *local[1:])
            yield step._replace(state=t)

    def all_steps(self, s):
        for pid, spec in enumerate(self.c.procs):
            if s.procs[pid][0] != "end":
                name = f"{spec[0]}{pid}" if spec[0] in ("sweep", "refresh") else f"{spec[0]}{spec[1]}"
                yield from getattr(self, spec[0])(s, pid, spec[1], name)
        yield from self.acknowledge(s)
        yield from self.clock(s)
        yield from self.reconcile(s)

    def go(self, s, pid, *local):
        return s._replace(procs=put(s.procs, pid, local))

    # connect ..........................................................................................................

    def callback(self, s, pid, x, name):
        pc, *local = s.procs[pid]
        c = self.conn_of(x)
        owner, conn, e = self.c.owner_of[c], s.conns[c], s.exchanges[x]
        bar = s.bars[owner]
        if pc == "start" and local:  # a second delivery of the same callback
            if conn.state == "authorizing":
                yield Step(f"{name}: the same callback again", self.go(s, pid, "resolve", conn.gen))
        elif pc == "start":
            open_to = ("new", "needs", "stopped", "revoked") + (("authorizing",) if self.c.restart else ())
            if not s.deleted[owner] and conn.state in open_to:
                t = s._replace(conns=put(s.conns, c, Conn("authorizing", conn.gen + 1)))
                yield Step(f"{name}: start", self.go(t, pid, "resolve", conn.gen + 1))
        elif pc == "resolve":
            if "begin_barrier" not in self.on or (
                bar.inflight is None
                and not any(self.blocks(s, i) for i in bar.owed)
                and not (bar.purges and "begin_purge" in self.on)
            ):
                yield Step(f"{name}: read barrier, resolve owed ids", self.go(s, pid, "begin", *local, bar))
        elif pc == "begin":
            gen, seen = local
            if "begin_holds_barrier" in self.on and "begin_barrier" in self.on and bar != seen:
                yield Step(f"{name}: begin refused, barrier moved", self.go(s, pid, "resolve", gen))
            elif (
                ("begin_generation" in self.on and conn != Conn("authorizing", gen))
                or ("begin_owner" in self.on and s.deleted[owner])
                or (e and "consume_once" in self.on)
            ):
                yield Step(f"{name}: begin refused", self.go(s, pid, "end"))
            else:
                bad = (
                    "P-3 one code used for a second exchange"
                    if e
                    else "I-9 exchange begun while the barrier holds"
                    if self.truly_blocked(s, owner, x)
                    else "I-10 exchange begun for a deleted owner"
                    if s.deleted[owner]
                    else "I-5 exchange begun after a stop or newer start"
                    if conn != Conn("authorizing", gen)
                    else None
                )
                keep = tuple(i for i in bar.owed if i < UNCONFIRMED and s.revs[i] and s.revs[i].state not in TERMINAL)
                t = s._replace(exchanges=put(s.exchanges, x, Exchange(gen)))
                yield Step(
                    f"{name}: begin exchange (recorded)",
                    self.go(self.bar(t, owner, inflight=x, owed=keep), pid, "send"),
                    bad,
                )
        elif pc == "send":
            if e.over and "send_within_window" in self.on:
                yield Step(f"{name}: window over before the request, ends as not sent", self.go(s, pid, "refused"))
                return
            bad = None if e.outcome == "open" else "I-2 token request without an open exchange"
            issued = s._replace(ledger=put(s.ledger, x, Token(x, "alive")))
            yield Step(f"{name}: provider issues the grant", self.go(issued, pid, "hold"), bad)
            yield Step(f"{name}: provider issues the grant, answer lost", self.go(issued, pid, "unknown"), bad)
            yield Step(f"{name}: request lost", self.go(s, pid, "unknown"), bad)
            slow = s._replace(exchanges=put(s.exchanges, x, e._replace(slow=not e.over)))
            yield Step(f"{name}: request slow, sender gives up", self.go(slow, pid, "unknown"), bad)
            yield Step(f"{name}: provider refuses", self.go(s, pid, "refused"), bad)
        elif pc in ("unknown", "refused"):
            t = self.close(s, x, "unconfirmed" if pc == "unknown" else "ended") if e.outcome == "open" else s
            yield Step(f"{name}: record outcome {pc}", self.go(t, pid, "end"))
        elif pc == "hold":
            if "hold_before_install" not in self.on:
                t = s._replace(revs=put(s.revs, x, Rev("held", x, (x,))))
                yield Step(f"{name}: judge the answer first", self.go(s, pid, "end"))
                yield from self.install(t, pid, x, name)
            elif e.outcome == "open" and s.revs[x] is None and not e.over:
                t = self.queue(s, x, Rev("held", x, (x,)))
                yield Step(f"{name}: hold (sealed revoke-only)", self.go(t, pid, "decide"))
                if self.c.ambiguous:
                    yield Step(f"{name}: hold, applied but reported failed", self.go(t, pid, "hold"))
            elif s.revs[x] and "own_write_known" in self.on:
                yield Step(f"{name}: hold again, recognises its own write", self.go(s, pid, "decide"))
            elif s.conns[c].gen == e.gen and s.grants[c] and "own_write_known" in self.on:
                yield Step(f"{name}: hold again, already installed", self.go(s, pid, "end"))
            elif "late_grant_queue" in self.on:
                t = self.queue(s, x, Rev("pending", x, (x,)))
                yield Step(f"{name}: late grant queued", self.go(self.close(t, x, "cleanup"), pid, "end"))
            else:
                yield Step(f"{name}: late grant refused", self.go(s, pid, "end"))
        elif pc == "decide":
            yield Step(f"{name}: hook and identity accept", self.go(s, pid, "end" if self.c.confirm else "install"))
            yield Step(f"{name}: hook or identity refuses", self.go(s, pid, "release"))
        else:
            yield from self.install(s, pid, x, name)

    def confirm(self, s, pid, x, name):
        if (s.exchanges[x] and s.revs[x]) or s.procs[pid][0] == "release":
            yield from self.install(s, pid, x, name)

    def close(self, s, x, outcome):
        """Exchange outcome and the barrier's in-flight slot in one transaction; unconfirmed needs acknowledgement."""
        owner = self.owner_of(x)
        s = s._replace(exchanges=put(s.exchanges, x, s.exchanges[x]._replace(outcome=outcome)))
        if outcome == "unconfirmed":
            s = self.bar(s, owner, owed=add(s.bars[owner].owed, UNCONFIRMED + x))
        return self.bar(s, owner, inflight=None) if s.bars[owner].inflight == x else s

    def install(self, s, pid, x, name):
        c, e, rev = self.conn_of(x), s.exchanges[x], s.revs[x]
        owner, conn, grant = self.c.owner_of[c], s.conns[c], s.grants[c]
        bar, on = s.bars[owner], self.on
        if s.procs[pid][0] == "release":
            t = s
            if rev and rev.state == "held":
                t = self.close(s._replace(revs=put(s.revs, x, rev._replace(state="pending"))), x, "cleanup")
            yield Step(f"{name}: release the held grant for revocation", self.go(t, pid, "end"))
            return
        if self.c.confirm:
            yield Step(f"{name}: owner declines", self.go(s, pid, "release"))
        killing = any(
            r and r.state == "pending" and r.lease is not None and (self.wide or r.family == x) for r in s.revs
        )
        blocked = bar.inflight != x or any(self.blocks(s, i) for i in bar.owed if i != x) or bar.purges
        refusals = {
            "install_holds": rev is None or rev.state != "held",
            "install_window": e.over and not self.c.skew,
            "install_generation": conn != Conn("authorizing", e.gen),
            "install_owner": s.deleted[owner],
            "install_barrier": blocked,
            "install_no_grant": grant is not None,
            "install_no_kill": killing,
            "install_not_tainted": e.tainted,
        }
        if e.outcome != "open" or any(no and rule in on for rule, no in refusals.items()):
            yield Step(f"{name}: install refused", self.go(s, pid, "release"))
            return
        bad = (
            "I-3 installed without the held item"
            if refusals["install_holds"]
            else "I-3 installed after the end"
            if e.over and not self.c.skew
            else "I-5 installed after a stop or newer start"
            if refusals["install_generation"]
            else "I-10 installed for a deleted owner"
            if s.deleted[owner]
            else "I-4 live grant overwritten"
            if grant
            else "I-9 installed while the barrier holds"
            if self.truly_blocked(s, owner, x)
            else "A-3 dead on arrival: our own revocation had killed the grant"
            if s.ledger[x].status != "alive"
            else None
        )
        t = s._replace(
            revs=put(s.revs, x, None),
            conns=put(s.conns, c, Conn("ready", conn.gen)),
            grants=put(s.grants, c, Grant(conn.gen, x, 1, x)),
            exchanges=put(s.exchanges, x, e._replace(outcome="installed")),
        )
        t = self.bar(t, owner, inflight=None, owed=without(bar.owed, x))
        yield Step(f"{name}: install", self.go(t, pid, "end"), bad)
        if self.c.ambiguous:
            yield Step(f"{name}: install, applied but reported failed", self.go(t, pid, "release"), bad)

    # tokens ...........................................................................................................

    def refresh(self, s, pid, c, name):
        pc, late, *local = s.procs[pid]
        owner, conn, grant = self.c.owner_of[c], s.conns[c], s.grants[c]
        on = self.on
        if pc == "lease":
            if (
                grant
                and conn.state == "ready"
                and (grant.lease is None or self.is_late(s, grant.lease) or "refresh_lease" not in on)
            ):
                t = s._replace(grants=put(s.grants, c, grant._replace(lease=pid)))
                yield Step(f"{name}: lease", self.go(t, pid, "record", False, grant.gen, grant.tv, grant.token))
        elif pc == "record":
            gen, tv, token = local
            if "refresh_record" not in on:
                yield Step(f"{name}: (no record)", self.go(s, pid, "send", late, *local))
            elif grant and (
                ("record_fenced" not in on)
                or (grant.lease == pid and (grant.gen, grant.tv) == (gen, tv) and not s.deleted[owner])
            ):
                record = add(grant.record, pid) if "record_keeps_attempts" in on else (pid,)
                t = s._replace(grants=put(s.grants, c, grant._replace(record=record)))
                bad = (
                    "I-5 refresh recorded after the owner was deleted"
                    if s.deleted[owner]
                    else "I-6 recorded although another refresher holds the lease"
                    if grant.lease != pid
                    else None
                )
                yield Step(f"{name}: record the attempt", self.go(t, pid, "send", late, *local), bad)
            else:
                yield Step(f"{name}: record refused", self.go(s, pid, "end", late))
        elif pc == "send":
            gen, tv, token = local
            if late and "send_within_lease" in on:
                yield Step(
                    f"{name}: lease over before the request, nothing sent",
                    self.go(self.resolve(s, pid), pid, "end", late),
                )
                return
            named = any(g and pid in g.record for g in s.grants) or any(r and pid in r.succ for r in s.revs)
            ledger, new = self.provider_refresh(s.ledger, token, pid)
            hurt = [
                g for g in s.grants if g and s.ledger[g.token].status == "alive" and ledger[g.token].status == "revoked"
            ]
            bad = (
                "A-1 live grant killed by our re-use of a spent refresh token"
                if hurt
                else None
                if named
                else "I-2 refresh request without a record"
            )
            t = s._replace(ledger=ledger)
            if new is None:
                yield Step(
                    f"{name}: provider refuses the refresh token", self.go(t, pid, "refused", late, gen, tv), bad
                )
            else:
                yield Step(
                    f"{name}: provider answers token {new}", self.go(t, pid, "save", late, gen, tv, token, new), bad
                )
                yield Step(f"{name}: provider answers token {new}, answer lost", self.go(t, pid, "end", late), bad)
            yield Step(f"{name}: request lost", self.go(s, pid, "end", late), bad)
        elif pc == "save":
            gen, tv, token, new = local
            refused = (
                grant is None
                or grant.gen != gen
                or (grant.tv != tv and "save_version" in on)
                or (grant.lease != pid and "save_lease" in on)
                or (s.deleted[owner] and "save_owner" in on)
            )
            if refused:
                yield Step(f"{name}: save refused", self.go(s, pid, "orphan", late, token, new))
                return
            others = without(grant.record, pid)
            bad = (
                "I-5 refresh saved after the owner was deleted"
                if s.deleted[owner]
                else "I-6 newer token replaced by an older one"
                if grant.tv != tv
                else "I-6 saved a dead token"
                if s.ledger[new].status != "alive" and s.ledger[grant.token].status == "alive"
                else None
            )
            strays = grant.strays or bool(others and self.survives_rotation() and "strays_kept" in on)
            mine = grant.lease == pid  # an answer to my request settles the attempts that I took over from, no others
            saved = Grant(
                gen, grant.family, grant.tv + 1, new, None if mine else grant.lease, () if mine else others, strays
            )
            t = s._replace(grants=put(s.grants, c, saved))
            if self.survives_rotation() and "old_queued" in on:
                t = self.queue(t, self.orphan_rev(pid) + len(self.attempts), Rev("pending", grant.family, (token,)))
            yield Step(f"{name}: save token {new}", self.go(t, pid, "end", late), bad)
            if self.c.ambiguous:
                yield Step(
                    f"{name}: save token {new}, applied but reported failed",
                    self.go(t, pid, "orphan", late, token, new),
                    bad,
                )
        elif pc == "orphan":
            token, new = local
            kept = any(g and g.token == new for g in s.grants) or s.ledger[new].family in {
                r.family for r in s.revs if r and r.saved == new
            }
            if new != token and kept and "own_write_known" in on:
                yield Step(
                    f"{name}: save again, recognises its own write", self.go(self.resolve(s, pid), pid, "end", late)
                )
            elif new == token:  # nothing new was issued
                yield Step(f"{name}: same token, attempt resolved", self.go(self.resolve(s, pid), pid, "end", late))
            elif "orphan_queue" not in on:
                yield Step(f"{name}: rotated token dropped", self.go(s, pid, "end", late))
            else:
                family = s.ledger[new].family
                home = self.stop_rev(family)
                stopped = s.revs[home]
                if "successor_own_item" not in on and stopped and stopped.state == "pending" and pid in stopped.succ:
                    rev = stopped._replace(tokens=add(stopped.tokens, new), succ=without(stopped.succ, pid))
                    t = s._replace(revs=put(s.revs, home, rev))
                    yield Step(f"{name}: successor added to revocation {home}", self.go(t, pid, "end", late))
                else:
                    t = self.queue(self.resolve(s, pid), self.orphan_rev(pid), Rev("pending", family, (new,)))
                    yield Step(
                        f"{name}: rotated token queued as revocation {self.orphan_rev(pid)}",
                        self.go(t, pid, "end", late),
                    )
        elif pc == "refused":
            gen, tv = local
            exact = grant and ((grant.gen, grant.tv) == (gen, tv) or "loss_exact_handle" not in on)
            if exact and conn.state == "ready":
                healthy = s.ledger[grant.token].status == "alive"
                t = self.stop_grant(s, c, "needs", pid)
                yield Step(
                    f"{name}: grant lost, stop",
                    self.go(t, pid, "end", late),
                    "A-2 healthy grant stopped by a stale refusal" if healthy else None,
                )
            else:
                yield Step(f"{name}: refusal is stale", self.go(self.resolve(s, pid), pid, "end", late))

    def handout(self, s, pid, c, name):
        """Two reads, in either order of a batch get. Judged: the token answered was allowed at some instant of the call."""
        pc, *local = s.procs[pid]
        conn, grant, dead = s.conns[c], s.grants[c], s.deleted[self.c.owner_of[c]]
        if pc == "first":
            if grant:
                yield Step(
                    f"{name}: read the grant", self.go(s, pid, "fence", self.allowed(s, c), grant.token, grant.gen)
                )
            if "fence_read_last" not in self.on and conn.state == "ready" and not dead:
                yield Step(f"{name}: read fence and connection", self.go(s, pid, "grant", self.allowed(s, c), conn.gen))
            return
        allowed, *seen = local
        if pc == "fence":
            token, gen = seen
            answers = "fence_read" not in self.on or (not dead and conn == Conn("ready", gen))
        else:
            token, answers = grant and grant.token, grant is not None and grant.gen == seen[0]
        bad = "I-5 access token handed out after the stop" if answers and token not in allowed else None
        yield Step(
            f"{name}: second read, " + ("answer the token" if answers else "refuse"), self.go(s, pid, "end"), bad
        )

    def allowed(self, s, c):
        return (s.grants[c].token,) if s.grants[c] and not s.deleted[self.c.owner_of[c]] else ()

    def survives_rotation(self):
        return self.c.policy == "grace" and self.c.reach == "token"

    def is_late(self, s, pid):
        return s.procs[pid][1]

    def resolve(self, s, pid):
        """Attempt *pid* is accounted for: take it out of the record, or of the successors expected by a revocation."""
        grants = tuple(g and g._replace(record=without(g.record, pid)) for g in s.grants)
        revs = tuple(r and r._replace(succ=without(r.succ, pid)) for r in s.revs)
        return s._replace(grants=grants, revs=revs)

    # stop .............................................................................................................

    def stop_steps(self, s, pid, c, name, gen, seen):
        conn, grant = s.conns[c], s.grants[c]
        if conn.gen != gen and "stop_generation" in self.on:
            yield Step(f"{name}: generation moved, nothing changes", self.go(s, pid, "end"))
            return
        bad = "I-5 a newer generation was stopped by an old request" if conn.gen != gen else None
        if "stop_version" in self.on or grant is None:
            seen = None
        yield Step(f"{name}: stop commits", self.go(self.stop_grant(s, c, "stopped", None, seen), pid, "end"), bad)
        if grant and self.c.outage and "stop_unopened" not in self.on:
            t = self.stop_grant(s, c, "stopped", None, seen, unreadable=True)
            yield Step(f"{name}: stop commits, key unavailable", self.go(t, pid, "end"), bad)

    def disconnect(self, s, pid, c, name):
        pc, *local = s.procs[pid]
        conn = s.conns[c]
        if pc == "see":
            if conn.state not in ("new", "stopped", "revoked"):
                yield Step(
                    f"{name}: read generation and grant",
                    self.go(s, pid, "commit", conn.gen, None if "stop_version" in self.on else s.grants[c]),
                )
        else:
            yield from self.stop_steps(s, pid, c, name, *local)

    def delete(self, s, pid, owner, name):
        yield Step(
            f"{name}: owner fence set to deleted", self.go(s._replace(deleted=put(s.deleted, owner, True)), pid, "end")
        )

    def purge(self, s, pid, c, name):
        """The app's answer to a purge that it was asked for: it carries the stop that it speaks of, and may come late."""
        pc, *local = s.procs[pid]
        mine = [stop for stop in s.purges if stop // 10 == c]
        if pc == "ask":
            for stop in mine:
                yield Step(f"{name}: the app is asked to purge stop {stop}", self.go(s, pid, "answer", stop))
            return
        (stop,) = local
        done = stop if stop in mine or "purge_token" in self.on else next(iter(mine), stop)
        bad = "I-11 the purge of a newer stop was completed by the word for an older one" if done != stop else None
        yield Step(
            f"{name}: the app has purged, says its word for stop {stop}", self.go(self.purged(s, done), pid, "end"), bad
        )

    def purged(self, s, stop):
        """Purge *stop* is done; said again, it changes nothing."""
        owner = self.c.owner_of[stop // 10]
        s = s._replace(purges=without(s.purges, stop))
        return self.bar(s, owner, purges=without(s.bars[owner].purges, stop))

    # revocations ......................................................................................................

    def sweep(self, s, pid, _, name):
        pc, *local = s.procs[pid]
        if pc != "idle":
            yield Step(f"{name}: crash and restart", self.go(s, pid, "idle"))
        if pc == "idle":
            for rid, rev in enumerate(s.revs):
                if rev is None or rev.deadline_over or rev.state not in ("held", "pending"):
                    continue
                if rev.state == "held" and "claim_after_hold" in self.on and not s.exchanges[rid].over:
                    continue
                if rev.lease is not None and not rev.lease_over and "claim_lease" in self.on:
                    continue
                live = self.reaches_live(s, rev)
                if "park_reach" in self.on and "claim_checks_account" not in self.on and self.c.reach != "token":
                    if not local:
                        if not live:
                            yield Step(
                                f"{name}: read the account, nothing live in reach of {rid}",
                                self.go(s, pid, "idle", rid),
                                None,
                                3,
                            )
                            continue
                    elif local[0] != rid:
                        continue
                    else:
                        live = False
                if "park_reach" in self.on and live:
                    t = s._replace(revs=put(s.revs, rid, rev._replace(state="parked", lease=None, lease_over=False)))
                    yield Step(f"{name}: park revocation {rid} beside a live grant", t, None, 3)
                else:
                    t = s._replace(revs=put(s.revs, rid, rev._replace(state="pending", lease=pid, lease_over=False)))
                    early = rev.state == "held" and not s.exchanges[rid].over
                    yield Step(
                        f"{name}: claim revocation {rid}",
                        self.go(t, pid, "call", rid, rev.tokens, rev.tokens),
                        "A-4 a held grant was taken while it could still be installed" if early else None,
                        3,
                    )
        elif pc == "call":
            rid, left, snapshot = local
            rev = s.revs[rid]
            mine = rev and rev.state == "pending" and rev.lease == pid and not rev.lease_over
            if not mine and "revoke_within_lease" in self.on:
                yield Step(f"{name}: lease over before the call", self.go(s, pid, "idle"), None, 0)
                return
            token, rest = left[0], left[1:]
            ledger = self.kill(s.ledger, token)
            hurt = [
                g for g in s.grants if g and s.ledger[g.token].status == "alive" and ledger[g.token].status != "alive"
            ]
            bad = "A-1 live grant killed by a revocation of another one" if hurt else None
            t = s._replace(ledger=ledger)
            if self.wide:
                t = t._replace(
                    exchanges=tuple(e._replace(tainted=True) if e and e.outcome == "open" else e for e in t.exchanges)
                )
            nxt = ("call", rid, rest, snapshot) if rest else ("settle", rid, True, snapshot)
            yield Step(f"{name}: provider revokes token {token}", self.go(t, pid, *nxt), bad, 0)
            if t != s:
                yield Step(
                    f"{name}: provider revokes token {token}, answer lost",
                    self.go(t, pid, "settle", rid, False, snapshot),
                    bad,
                )
            yield Step(f"{name}: revoke call fails", self.go(s, pid, "settle", rid, False, snapshot))
        elif pc == "settle":
            yield from self.settle(s, pid, name, *local)

    def settle(self, s, pid, name, rid, ok, snapshot):
        rev = s.revs[rid]
        done = self.go(s, pid, "idle")
        if rev is None or (("settle_lease" in self.on) and (rev.state != "pending" or rev.lease != pid)):
            yield Step(f"{name}: settle refused, not my claim", done, None, 0)
            return
        good = (
            ok
            and not (rev.deadline_over and "settle_deadline" in self.on)
            and not (rev.succ and "settle_no_successor" in self.on)
            and (rev.tokens == snapshot or "settle_same_material" not in self.on)
        )
        if not good:
            back = rev._replace(state="pending", lease=None, lease_over=False)
            yield Step(f"{name}: settle {rid} for a later try", done._replace(revs=put(s.revs, rid, back)), None, 0)
            return
        lost = rev.lost and "successor_lost" in self.on
        end = rev._replace(
            state="unconfirmed" if lost else "confirmed", tokens=(), succ=(), lease=None, lease_over=False
        )
        t = done._replace(revs=put(s.revs, rid, end))
        bad = None
        if not lost:
            bad = "I-8 confirmed after the deadline" if rev.deadline_over else None
            whole = rid in (rev.family, self.stop_rev(rev.family))  # an orphan's item speaks for its own token only
            for token, k in enumerate(s.ledger):
                others = (r for r in t.revs if r and r.family == rev.family)
                if (
                    k
                    and k.status == "alive"
                    and not k.attested
                    and (token in rev.tokens or (whole and k.family == rev.family))
                    and not any(token in r.tokens or r.state in NOTICE for r in others)
                ):
                    bad = f"FALSE-CONFIRM revocation {rid} confirmed while token {token} of the grant is alive"
        yield Step(f"{name}: settle {rid} {end.state}", t, bad, 0)

    # the owner, the clock, the reconciler .............................................................................

    def acknowledge(self, s):
        for x, e in enumerate(s.exchanges):
            if e and e.outcome == "unconfirmed" and not e.acked and (e.over or "ack_after_window" not in self.on):
                t = s._replace(exchanges=put(s.exchanges, x, e._replace(acked=True)))
                yield Step(f"owner acknowledges exchange {x}", self.attest(t, x))
        for rid, r in enumerate(s.revs):
            if r and not r.acked and (r.state in NOTICE or (r.state == "pending" and "ack_terminal" not in self.on)):
                t = s._replace(revs=put(s.revs, rid, r._replace(acked=True)))
                yield Step(f"owner acknowledges revocation {rid}", self.attest(t, r.family))

    def attest(self, s, family):
        return s._replace(
            ledger=tuple(
                k._replace(attested=True) if k and k.family == family and k.status == "alive" else k for k in s.ledger
            )
        )

    def clock(self, s):
        for x, e in enumerate(s.exchanges):
            if e and e.outcome in ("open", "unconfirmed") and not e.over:
                yield Step(
                    f"time: exchange {x} is over",
                    s._replace(exchanges=put(s.exchanges, x, e._replace(over=True, slow=False))),
                    None,
                    1,
                )
            if e and e.slow:
                yield Step(
                    f"the slow request of exchange {x} arrives, provider issues the grant",
                    s._replace(
                        exchanges=put(s.exchanges, x, e._replace(slow=False)),
                        ledger=put(s.ledger, x, Token(x, "alive")),
                    ),
                )
        for pid in self.attempts:
            pc, late, *local = s.procs[pid]
            if pc != "lease" and not late and (pc != "end" or self.is_noted(s, pid)):
                yield Step(f"time: lease of refresh{pid} is over", self.go(s, pid, pc, True, *local), None, 1)
        for rid, r in enumerate(s.revs):
            if r and r.state == "pending":
                if r.lease is not None and not r.lease_over:
                    yield Step(
                        f"time: lease on revocation {rid} is over",
                        s._replace(revs=put(s.revs, rid, r._replace(lease_over=True))),
                        None,
                        4,
                    )
                if self.c.deadlines and not r.deadline_over and all(self.is_late(s, a) for a in r.succ):
                    yield Step(
                        f"time: deadline of revocation {rid}",
                        s._replace(revs=put(s.revs, rid, r._replace(deadline_over=True))),
                    )

    def is_noted(self, s, pid):
        return any(g and (g.lease == pid or pid in g.record) for g in s.grants) or any(
            r and pid in r.succ for r in s.revs
        )

    def reconcile(self, s):
        for x, e in enumerate(s.exchanges):
            if e and e.outcome == "open" and e.over:
                rev = s.revs[x]
                if rev is None or "lapse_only_empty" not in self.on:
                    yield Step(
                        f"reconcile: exchange {x} lapses to unconfirmed", self.close(s, x, "unconfirmed"), None, 2
                    )
                else:
                    freed = rev._replace(state="pending") if rev.state == "held" else rev
                    yield Step(
                        f"reconcile: hold of exchange {x} ends",
                        self.close(s._replace(revs=put(s.revs, x, freed)), x, "cleanup"),
                        None,
                        2,
                    )
        for c, g in enumerate(s.grants):
            if g and g.record and all(self.is_late(s, a) for a in g.record):
                if self.c.policy == "static" or (self.c.policy == "grace" and self.c.reach != "token"):
                    t = s._replace(grants=put(s.grants, c, g._replace(record=(), lease=None)))
                elif self.c.policy == "grace":
                    t = s._replace(
                        grants=put(s.grants, c, g._replace(record=(), lease=None, strays="strays_kept" in self.on))
                    )
                else:
                    t = self.stop_grant(s, c, "needs", None)
                yield Step(f"reconcile: refresh record of connection {c} lapses", t, None, 2)
        for rid, r in enumerate(s.revs):
            if r and r.state == "pending":
                if r.deadline_over:
                    t = r._replace(state="expired", tokens=(), succ=(), lease=None, lease_over=False)
                    yield Step(f"reconcile: revocation {rid} expires", s._replace(revs=put(s.revs, rid, t)), None, 2)
                elif r.succ and all(self.is_late(s, a) for a in r.succ):
                    t = r._replace(succ=(), lost=True)
                    yield Step(
                        f"reconcile: successor of revocation {rid} never came",
                        s._replace(revs=put(s.revs, rid, t)),
                        None,
                        2,
                    )
            elif r and r.state == "parked" and "wake_parked" in self.on and not self.reaches_live(s, r):
                t = s._replace(revs=put(s.revs, rid, r._replace(state="pending", woken=True)))
                yield Step(f"reconcile: parked revocation {rid} wakes", t, None, 2)
        if self.c.compaction:
            for rid, r in enumerate(s.revs):
                if r and r.state == "confirmed":
                    owner = self.owner_of(r.family)
                    owed = s.bars[owner].owed
                    t = self.bar(s, owner, owed=without(owed, rid) if "compact_unlists" in self.on else owed)
                    yield Step(
                        f"maintain: revocation {rid} compacted", t._replace(revs=put(t.revs, rid, None)), None, 5
                    )
        for stop in s.purges:
            yield Step(
                f"reconcile: the app is asked again, purge of stop {stop} is done", self.purged(s, stop), None, 2
            )
        for c, conn in enumerate(s.conns):
            if conn.state == "stopped" and self.may_report_revoked(s, c):
                alive = [
                    i
                    for i, k in enumerate(s.ledger)
                    if k and self.conn_of(k.family) == c and k.status == "alive" and not k.attested
                ]
                open_purge = any(stop // 10 == c for stop in s.purges)
                yield Step(
                    f"reconcile: connection {c} is reported revoked",
                    s._replace(conns=put(s.conns, c, conn._replace(state="revoked"))),
                    f"I-13 reported revoked while token {alive[0]} is alive"
                    if alive
                    else "I-13 reported revoked before its purge"
                    if open_purge
                    else None,
                    2,
                )
            if s.deleted[self.c.owner_of[c]] and conn.state not in ("new", "stopped", "revoked"):
                yield Step(
                    f"reconcile: deleted owner, stop connection {c}", self.stop_grant(s, c, "stopped", None), None, 2
                )

    def may_report_revoked(self, s, c):
        """What 'revoked' counts: the revocations of the stop, of late successors, of its exchanges, and the purge."""
        if "receipt_counts_purge" in self.on and any(stop // 10 == c for stop in s.purges):
            return False
        for rid, r in enumerate(s.revs):
            counts = rid < 2 * self.nx or "receipt_counts_orphans" in self.on
            if r and counts and self.conn_of(r.family) == c and r.state != "confirmed":
                return False
        return "receipt_counts_exchanges" not in self.on or not any(
            e and self.conn_of(x) == c and e.outcome in ("open", "unconfirmed") for x, e in enumerate(s.exchanges)
        )

    # -- the judge ---------------------------------------------------------------------------------------------------

    def killable(self, s):
        """Alive tokens that somebody who holds a sealed copy (or a worker's memory) could still end."""
        copies = {g.token for g in s.grants if g} | {t for r in s.revs if r for t in r.tokens}
        for pid, spec in enumerate(self.c.procs):
            pc = s.procs[pid][0]
            if spec[0] == "callback" and pc == "hold":
                copies.add(spec[1])
            elif spec[0] == "refresh" and pc in ("save", "orphan") and s.procs[pid][-1] != s.procs[pid][-2]:
                copies.add(s.procs[pid][-1])
        return frozenset(t for c in copies for t in self.reaches(s.ledger, c) if s.ledger[t].status == "alive")

    def state_violation(self, s):
        for c, g in enumerate(s.grants):
            if g and s.conns[c] != Conn("ready", g.gen):
                return "I-5 a grant is stored for a connection that is not ready at its generation"
        for x, e in enumerate(s.exchanges):
            if e and e.outcome == "unconfirmed" and not e.acked and s.revs[x]:
                return "A-5 the owner is asked to remove by hand a grant that we hold"
        sealed = {g.token for g in s.grants if g} | {t for r in s.revs if r for t in r.tokens}
        covered = {t for c in sealed for t in self.reaches(s.ledger, c)}
        places = [g.token for g in s.grants if g] + [t for r in s.revs if r for t in r.tokens]
        if len(places) != len(set(places)):
            return "I-1 one token in two live places"
        noted = {pid for g in s.grants if g for pid in g.record} | {
            pid for r in s.revs if r and r.state == "pending" for pid in r.succ
        }
        strays = {g.family for g in s.grants if g and g.strays} | {
            r.family for r in s.revs if r and r.lost and r.state == "pending"
        }
        notices = {r.family for r in s.revs if r and r.state in NOTICE and not r.acked} | {
            x for x, e in enumerate(s.exchanges) if e and e.outcome == "unconfirmed" and not e.acked
        }
        for t, k in enumerate(s.ledger):
            if not k or k.status != "alive" or k.attested or t in covered or k.family in notices or k.family in strays:
                continue
            if t < self.nx:
                if s.exchanges[t].outcome == "open":
                    continue
            elif self.attempts[t - self.nx] in noted:
                continue
            return f"I-1 lost grant: token {t} is alive at the provider and nothing durable names it"
        return None

    def step_violation(self, s, step):
        t = step.state
        for a, b in zip(s.revs, t.revs, strict=False):
            if (
                a is not b
                and a
                and a.state in TERMINAL
                and (not self.c.compaction if b is None else b.state != a.state)
            ):
                return "I-7 a terminal revocation went back"
        if t.ledger is s.ledger and "expires" not in step.label:
            dropped = self.cached_killable(s) - self.cached_killable(t)
            if dropped:
                return f"D-2/D-5 the last copy of token {min(dropped)} was thrown away while it could still be revoked"
        return None

    def cached_killable(self, s):
        key = (s.grants, s.revs, s.ledger, s.procs)
        if key not in self._killable:
            self._killable[key] = self.killable(s)
        return self._killable[key]

    def unsettled(self, s):
        """What is still open although recovery has nothing left to do."""
        for rid, r in enumerate(s.revs):
            if r and (r.state in ("held", "pending") or (r.state == "parked" and not self.reaches_live(s, r))):
                return f"revocation {rid} is {r.state}"
        for x, e in enumerate(s.exchanges):
            if e and e.outcome == "open":
                return f"exchange {x} is open"
        if any(g and g.record for g in s.grants):
            return "a refresh record is open"
        if s.purges:
            return "a purge is open"
        for owner, bar in enumerate(s.bars):
            held = bar.inflight is not None or any(self.blocks(s, i) for i in bar.owed) or bar.purges
            if held and not self.truly_blocked(s, owner, None, woken=True):
                return "the barrier holds although nothing is owed"
        return None
