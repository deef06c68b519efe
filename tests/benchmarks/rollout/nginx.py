"""The peer of a rollback: how the field does it, a `split_clients` in nginx that is rewritten and reloaded.

The share falls from 100 % of new users on the candidate's server to none; nginx's own log says when requests started.
"""

import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.rollout.moments import last_until
from tests.benchmarks.rollout.traffic import Traffic
from tests.chaos.part import Part, free_ports

_AFTER_S = 0.25
_CONFIG = """\
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_processes 1;
events {{ worker_connections 1024; }}
http {{
  log_format started '$msec $request_time $upstream';
  access_log {folder}/access.log started;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream stable {{ server 127.0.0.1:{stable}; keepalive 16; }}
  upstream candidate {{ server 127.0.0.1:{candidate}; keepalive 16; }}
  split_clients $http_x_user_id $upstream {{ {split} }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://$upstream; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""


def version() -> str:
    """Of nginx; empty where there is none."""
    if shutil.which("nginx") is None:
        return ""
    said = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True).stderr
    return said.strip().rpartition("/")[2]


def rollbacks(folder: Path, count: int, rate: float) -> list[float]:
    """Seconds from each `nginx -s reload` to the last request that started and was sent to the candidate."""
    folder.mkdir(parents=True)
    port, stable, candidate = free_ports(3)
    config = folder / "nginx.conf"

    def write(split: str) -> None:
        text = _CONFIG.format(folder=folder, port=port, stable=stable, candidate=candidate, split=split)
        config.write_text(text)

    def reload(split: str) -> float:
        write(split)
        asked = time.time()
        subprocess.run(["nginx", "-c", str(config), "-s", "reload"], check=True, capture_output=True)
        return asked

    write("* candidate;")
    engine = (sys.executable, "-m", "tests.chaos.engine", "--token-ms", "1")
    parts = [
        Part(
            name,
            (*engine, "--name", name, "--port", str(at)),
            f"http://127.0.0.1:{at}/health",
            folder / f"{name}.log",
            os.environ,
        )
        for name, at in (("stable", stable), ("candidate", candidate))
    ]
    url = f"http://127.0.0.1:{port}"
    parts.append(Part("nginx", ("nginx", "-c", str(config)), f"{url}/health", folder / "nginx.log", os.environ))
    body = {"model": "base", "messages": [{"role": "user", "content": "where is my parcel?"}]}
    spans = []
    with ExitStack() as stopping:
        for part in parts:
            part.start()
            stopping.callback(part.kill)
        for part in parts:
            part.wait()
        with Traffic([f"{url}/v1/chat/completions"], {}, body, rate):
            for _ in range(count):
                time.sleep(_AFTER_S)
                asked = reload("* stable;")
                time.sleep(2 * _AFTER_S)
                spans.append((asked, time.time()))
                reload("* candidate;")
        time.sleep(1.0)
    starts = _starts(folder / "access.log")
    return [last_until(starts, asked, until) for asked, until in spans]


def _starts(log: Path) -> list[float]:
    """Unix seconds at which the candidate's requests started, sorted."""
    starts = []
    for line in log.read_text().splitlines():
        ended, lasted, upstream = line.split()
        if upstream == "candidate":
            starts.append(float(ended) - float(lasted))
    return sorted(starts)
