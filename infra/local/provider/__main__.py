"""`python -m infra.local.provider --port N --state DIR`: serve until SIGTERM; a line of JSON says that it is ready."""

import argparse
import json
import signal
import threading
from pathlib import Path
from types import FrameType

from infra.local.provider.server import HOST, serve


def main() -> int:
    """Serve until SIGTERM or SIGINT, then let every held answer go and end."""
    words = argparse.ArgumentParser(prog="python -m infra.local.provider", description=__doc__)
    words.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 picks a free one")
    words.add_argument("--state", type=Path, required=True, help="folder of the database and of the accounts' file")
    asked = words.parse_args()

    server, stalls, accounts = serve(asked.port, asked.state)

    def stop(signum: int, frame: FrameType | None) -> None:
        stalls.release()
        threading.Thread(target=server.shutdown).start()  # shutdown() waits for the loop that runs in this thread

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    ready = {"ready": "provider", "url": f"http://{HOST}:{server.server_port}", "accounts": str(accounts)}
    print(json.dumps(ready), flush=True)
    server.serve_forever(poll_interval=0.1)
    server.server_close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
