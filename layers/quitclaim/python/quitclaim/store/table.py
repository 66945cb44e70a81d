"""
The `Table` port on DynamoDB.

Renders conditions and updates into expressions, and each of the service's answers into one of three: refused (a
condition did not hold), busy (nothing was judged), ambiguous (it may have been applied). It decides nothing and repeats
nothing; botocore's own repeats are bounded by the client's configuration.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from quitclaim.domain.errors import StoreError
from quitclaim.ports import (
    AnyOf,
    Check,
    Clause,
    Condition,
    Delete,
    Item,
    Key,
    Page,
    Put,
    Update,
    Write,
    WriteAmbiguousError,
    WriteBusyError,
    WriteRefusedError,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

BUSY: Final = frozenset(
    {
        "TransactionConflictException",
        "TransactionInProgressException",
        "ThrottlingException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "LimitExceededException",
    }
)
BUSY_REASONS: Final = frozenset({"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"})

ROUNDS: Final = 8
"""How often what a batch read left out is asked for: more than twice what 100 items of the largest size need."""


class BatchFaultError(Exception):
    """
    A statement that DynamoDB does not take, or that the function's role may not send: a fault of ours, or of an item
    whose attributes are not of their types.
    """


class DynamoTable:
    """The table *name* behind a low-level client."""

    def __init__(self, client: "DynamoDBClient", name: str) -> None:
        self._client = client
        self._name = name

    # --- reads ---

    def get(self, key: Key) -> Item | None:
        """See `ports.Table.get`."""
        with _reading():
            found = self._client.get_item(TableName=self._name, Key=_wire_key(key), ConsistentRead=True)
        return _item(found["Item"]) if "Item" in found else None

    def batch_get(self, keys: Sequence[Key]) -> list[Item | None]:
        """See `ports.Table.batch_get`."""
        wanted: list[dict[str, Any]] = [_wire_key(key) for key in dict.fromkeys(keys)]
        found: dict[Key, Item] = {}
        rounds = 0
        while wanted:
            rounds += 1
            if rounds > ROUNDS:
                raise StoreError
            with _reading():
                answer = self._client.batch_get_item(
                    RequestItems={self._name: {"Keys": wanted, "ConsistentRead": True}}
                )
            for raw in answer["Responses"].get(self._name, []):
                item = _item(raw)
                found[Key(item["PK"], item["SK"])] = item
            rest = answer.get("UnprocessedKeys", {}).get(self._name)
            wanted = list(rest["Keys"]) if rest else []
        return [found.get(key) for key in keys]

    def query(
        self, pk: str, prefix: str = "", *, limit: int | None = None, after: Mapping[str, Any] | None = None
    ) -> Page:
        """See `ports.Table.query`."""
        condition = "PK = :pk" + (" AND begins_with(SK, :sk)" if prefix else "")
        values = {":pk": {"S": pk}} | ({":sk": {"S": prefix}} if prefix else {})
        return self._page(
            limit, after, KeyConditionExpression=condition, ExpressionAttributeValues=values, ConsistentRead=True
        )

    def query_index(
        self, index: str, partition: str, *, upto: str | None = None, limit: int, after: Mapping[str, Any] | None = None
    ) -> Page:
        """See `ports.Table.query_index`."""
        hash_name, sort_name = index[0] + "1", index[0] + "2"
        condition = f"{hash_name} = :h" + (f" AND {sort_name} <= :s" if upto is not None else "")
        values = {":h": {"S": partition}} | ({":s": {"S": upto}} if upto is not None else {})
        return self._page(
            limit, after, IndexName=index, KeyConditionExpression=condition, ExpressionAttributeValues=values
        )

    def scan(self, *, after: Mapping[str, Any] | None = None) -> Page:
        """See `ports.WholeTable.scan`."""
        start: dict[str, Any] = {} if after is None else {"ExclusiveStartKey": dict(after)}
        with _reading():
            answer = self._client.scan(TableName=self._name, ConsistentRead=True, **start)
        return Page(tuple(_item(raw) for raw in answer["Items"]), answer.get("LastEvaluatedKey"))

    def _page(self, limit: int | None, after: Mapping[str, Any] | None, **query: Any) -> Page:
        if limit is not None:
            query["Limit"] = limit
        if after is not None:
            query["ExclusiveStartKey"] = dict(after)
        with _reading():
            answer = self._client.query(TableName=self._name, **query)
        return Page(tuple(_item(raw) for raw in answer["Items"]), answer.get("LastEvaluatedKey"))

    # --- writes ---

    def write(self, write: Write) -> None:
        """See `ports.Table.write`."""
        request = self._request(write)
        call = {Put: self._client.put_item, Update: self._client.update_item, Delete: self._client.delete_item}[
            type(write)
        ]
        try:
            call(**request)  # type: ignore[operator]  # the three take different requests
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                found: Any = error.response.get("Item", {})
                raise WriteRefusedError([_item(found)]) from error
            raise _judged(error) from error
        except ParamValidationError:
            raise  # never sent: a fault of ours
        except BotoCoreError as error:
            raise WriteAmbiguousError from error

    def transact(self, writes: Sequence[Write]) -> None:
        """See `ports.Table.transact`."""
        verb = {Put: "Put", Update: "Update", Delete: "Delete", Check: "ConditionCheck"}
        actions: Any = [{verb[type(each)]: self._request(each)} for each in writes]
        try:
            self._client.transact_write_items(TransactItems=actions)
        except ClientError as error:
            if error.response["Error"]["Code"] == "TransactionCanceledException":
                raise _cancelled(error) from error
            raise _judged(error) from error
        except ParamValidationError:
            raise  # never sent: a fault of ours
        except BotoCoreError as error:
            raise WriteAmbiguousError from error

    def batch_update(self, updates: Sequence[Update]) -> list[Exception | None]:
        """See `ports.Table.batch_update`: one call of up to 25 PartiQL statements."""
        statements = [_statement(self._name, each) for each in updates]
        try:
            answer = self._client.batch_execute_statement(Statements=statements)  # type: ignore[arg-type]
        except ClientError as error:
            judged = _judged(error)
            if judged is error:
                raise
            return [judged] * len(updates)
        except ParamValidationError:
            raise
        except BotoCoreError:
            return [WriteAmbiguousError()] * len(updates)
        return [_verdict(each) for each in answer["Responses"]]

    def _request(self, write: Write) -> dict[str, Any]:
        names = _Names()
        request: dict[str, Any] = {"TableName": self._name, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        if isinstance(write, Put):
            request["Item"] = _wire_key(write.key) | {name: _wire(value) for name, value in write.item.items()}
        else:
            request["Key"] = _wire_key(write.key)
        if isinstance(write, Update):
            request["UpdateExpression"] = _update(write, names)
        condition = _condition(write.when, names)
        if condition:
            request["ConditionExpression"] = condition
        if names.names:
            request["ExpressionAttributeNames"] = names.names
        if names.values:
            request["ExpressionAttributeValues"] = names.values
        return request


class _Names:
    """Placeholders of one request: every attribute name is one, so reserved words never matter."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self._taken: dict[str, str] = {}

    def name(self, attribute: str) -> str:
        if attribute not in self._taken:
            self._taken[attribute] = f"#n{len(self._taken)}"
            self.names[self._taken[attribute]] = attribute
        return self._taken[attribute]

    def value(self, value: Any) -> str:
        placeholder = f":v{len(self.values)}"
        self.values[placeholder] = _wire(value)
        return placeholder


def _condition(condition: Condition, names: _Names) -> str:
    parts = []
    for each in condition:
        if isinstance(each, AnyOf):
            parts.append("(" + " OR ".join(_clause(clause, names) for clause in each.clauses) + ")")
        else:
            parts.append(_clause(each, names))
    return " AND ".join(parts)


def _clause(clause: Clause, names: _Names) -> str:
    name = names.name(clause.attribute)
    match clause.operator:
        case "absent":
            return f"attribute_not_exists({name})"
        case "present":
            return f"attribute_exists({name})"
        case "contains":
            return f"contains({name}, {names.value(clause.value)})"
        case "not contains":
            return f"NOT contains({name}, {names.value(clause.value)})"
        case "size <":
            return f"size({name}) < {names.value(clause.value)}"
        case comparison:
            return f"{name} {comparison} {names.value(clause.value)}"


def _update(write: Update, names: _Names) -> str:
    sets = [f"{names.name(name)} = {names.value(value)}" for name, value in write.put.items()]
    sets += [
        f"{names.name(name)} = if_not_exists({names.name(name)}, {names.value(value)})"
        for name, value in write.if_new.items()
    ]
    adds = [
        f"{names.name(name)} {names.value(value)}" for name, value in (*write.increase.items(), *write.include.items())
    ]
    deletes = [f"{names.name(name)} {names.value(value)}" for name, value in write.exclude.items()]
    removes = [names.name(name) for name in write.remove]
    sections = (("SET", sets), ("ADD", adds), ("DELETE", deletes), ("REMOVE", removes))
    return " ".join(f"{verb} {', '.join(parts)}" for verb, parts in sections if parts)


# --- PartiQL: the only way to send many conditional updates in one call ---


def _statement(table: str, update: Update) -> dict[str, Any]:
    if update.include or update.exclude or update.if_new:
        raise ValueError("a batched update changes no set and makes no item")
    values: list[Any] = []

    def value(raw: Any) -> str:
        values.append(_wire(raw))
        return "?"

    changes = [f'SET "{name}" = {value(raw)}' for name, raw in update.put.items()]
    changes += [f'SET "{name}" = "{name}" + {value(raw)}' for name, raw in update.increase.items()]
    changes += [f'REMOVE "{name}"' for name in update.remove]
    conditions = [f'"PK" = {value(update.key.pk)}', f'"SK" = {value(update.key.sk)}']
    for each in update.when:
        if isinstance(each, AnyOf):
            # "One of them" as "not none of them": MiniStack takes any OR for a search that names no key.
            none_of = " AND ".join(f"NOT ({_partiql(clause, value)})" for clause in each.clauses)
            conditions.append(f"NOT ({none_of})")
        else:
            conditions.append(_partiql(each, value))
    return {
        "Statement": f'UPDATE "{table}" {" ".join(changes)} WHERE {" AND ".join(conditions)}',
        "Parameters": values,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def _partiql(clause: Clause, value: Any) -> str:
    match clause.operator:
        case "absent":
            return f'"{clause.attribute}" IS MISSING'
        case "present":
            return f'"{clause.attribute}" IS NOT MISSING'
        case "contains":
            return f'contains("{clause.attribute}", {value(clause.value)})'
        case "not contains" | "size <":
            raise ValueError(f"no batched update has a condition with {clause.operator!r}")
        case comparison:
            return f'"{clause.attribute}" {comparison} {value(clause.value)}'


def _verdict(response: Any) -> Exception | None:
    error = response.get("Error")
    if error is None:
        return None
    match error.get("Code"):
        case "ConditionalCheckFailed":
            return WriteRefusedError([_item(error.get("Item") or response.get("Item") or {})])
        case "InternalServerError":
            return WriteAmbiguousError()
        case "RequestLimitExceeded" | "ThrottlingError" | "ProvisionedThroughputExceeded" | "TransactionConflict":
            return WriteBusyError()
        case fault:  # no outcome, and whoever gets it must tell: taken for one, it would be repeated unseen for ever
            return BatchFaultError(f"a batched update is refused as {fault}")


# --- the service's answers ---


class _reading:
    """A read that fails is a store that does not answer: nothing was changed."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, ClientError):
            code = error.response["Error"]["Code"]
            if code in BUSY or error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
                raise StoreError from error
        elif isinstance(error, BotoCoreError) and not isinstance(error, ParamValidationError):
            raise StoreError from error


def _judged(error: ClientError) -> Exception:
    """Busy, ambiguous, or a fault of ours that must rise as it is."""
    if error.response["Error"]["Code"] in BUSY:
        return WriteBusyError()
    if error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
        return WriteAmbiguousError()
    return error


def _cancelled(error: ClientError) -> Exception:
    reasons: Any = error.response.get("CancellationReasons", [])
    codes = {reason.get("Code") for reason in reasons}
    if "ConditionalCheckFailed" in codes:
        return WriteRefusedError(
            [
                _item(reason.get("Item", {})) if reason.get("Code") == "ConditionalCheckFailed" else None
                for reason in reasons
            ]
        )
    return WriteBusyError() if codes & BUSY_REASONS else error


# --- wire format ---


def _wire_key(key: Key) -> dict[str, Any]:
    return {"PK": {"S": key.pk}, "SK": {"S": key.sk}}


def _wire(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"BOOL": value}
        case str():
            return {"S": value}
        case int():
            return {"N": str(value)}
        case bytes():
            return {"B": value}
        case frozenset():
            return {"SS": sorted(value)}
        case list():
            return {"L": [_wire(member) for member in value]}
        case dict():
            return {"M": {name: _wire(member) for name, member in value.items()}}
        case None:
            return {"NULL": True}
        case _:
            raise TypeError(f"cannot be stored: {type(value).__name__}")


def _unwired(wire: dict[str, Any]) -> Any:
    ((kind, value),) = wire.items()
    match kind:
        case "N":
            return int(value)
        case "SS":
            return frozenset(value)
        case "L":
            return [_unwired(member) for member in value]
        case "M":
            return {name: _unwired(member) for name, member in value.items()}
        case "B":
            return bytes(value)
        case "NULL":
            return None
        case _:
            return value


def _item(raw: Mapping[str, Any]) -> Item:
    return {name: _unwired(value) for name, value in raw.items()}
