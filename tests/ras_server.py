"""A TCP server that answers like NCCL's RAS (src/ras/client_support.cc of NCCL 2.28)."""

from __future__ import annotations

import socketserver
import threading


class RasServer:
    """Serves `report` while it is open, and notes the lines that it was sent."""

    def __init__(self, report: bytes, closes: bool = True, port: int = 0) -> None:
        self.requests: list[bytes] = []
        self._closes, ended = closes, threading.Event()
        self._ended = ended
        requests = self.requests

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    requests.append(line)
                    word, _, rest = line.strip().lower().partition(b" ")
                    if word == b"timeout" and rest.isdigit():
                        self.wfile.write(b"OK\n")
                    elif line.strip().lower() in (b"status", b"verbose status"):
                        self.wfile.write(report)
                        if not closes:  # as while it waits for a process that does not answer
                            ended.wait()
                        return
                    else:
                        self.wfile.write(b"ERROR: Unknown command " + line)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> RasServer:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
