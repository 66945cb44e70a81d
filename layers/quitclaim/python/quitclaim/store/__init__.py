"""DynamoDB: keys, items, named conditions, one function per transaction (one row of the table of writes)."""
