"""Settings, wiring, HTTP mapping, logging and metrics: what joins the rings in a Lambda function."""
