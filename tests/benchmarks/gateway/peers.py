"""The peers, each with its better settings: a baseline that was made slow proves nothing."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import yaml

from tests.benchmarks.gateway.cases import ENVOY, LITELLM, NGINX
from tests.benchmarks.gateway.envs import PINNED, program
from tests.benchmarks.gateway.requests import BUSINESSES
from tests.benchmarks.gateway.servers import GATEWAY_CORE, BenchError, free_port, start
from tests.benchmarks.gateway.window import Contestant

_LITELLM_KEY = "sk-bench"
_PLENTY = 100_000
_LITELLM_ENVIRONMENT = {
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "NO_DOCS": "True",
    "NO_REDOC": "True",
    "DISABLE_ADMIN_UI": "True",
}


def start_nginx(folder: Path, stub_port: int, say: Callable[[str], None]) -> Contestant:
    """One worker that does nothing but proxy, with connections to the stub kept open."""
    path = shutil.which("nginx")
    if path is None:
        raise BenchError("not on PATH; `apt-get install nginx` brings it")
    port = free_port()
    home = folder / NGINX
    home.mkdir()
    config = home / "nginx.conf"
    config.write_text(_nginx_config(home, port, stub_port))
    said = subprocess.run([path, "-v"], capture_output=True, text=True, timeout=30, check=False).stderr
    server = start(NGINX, port, [path, "-c", str(config), "-e", str(home / "error.log")], folder, (GATEWAY_CORE,))
    return Contestant(NGINX, server, ("-",), said.strip().rpartition("/")[2])


def start_envoy(folder: Path, stub_port: int, say: Callable[[str], None]) -> Contestant:
    """One worker thread, one route, no filter but the router."""
    path = program(ENVOY, "envoy", say)
    port = free_port()
    config = folder / "envoy.json"
    config.write_text(json.dumps(_envoy_config(port, stub_port)))
    options = ["--concurrency", "1", "--log-level", "error", "--disable-hot-restart", "--use-dynamic-base-id"]
    server = start(ENVOY, port, [str(path), "-c", str(config), *options], folder, (GATEWAY_CORE,))
    return Contestant(ENVOY, server, ("-",), _pinned(ENVOY))


def start_litellm(folder: Path, stub_port: int, say: Callable[[str], None]) -> Contestant:
    """One worker; a master key, no database, no cost to compute, no log but errors."""
    path = program(LITELLM, "litellm", say)
    port = free_port()
    config = folder / "litellm.yaml"
    config.write_text(yaml.safe_dump(_litellm_config(stub_port)))
    options = ["--host", "127.0.0.1", "--port", str(port), "--num_workers", "1", "--keepalive_timeout", "120"]
    command = [str(path), "--config", str(config), *options]
    server = start(LITELLM, port, command, folder, (GATEWAY_CORE,), _LITELLM_ENVIRONMENT)
    return Contestant(LITELLM, server, (_LITELLM_KEY,), _pinned(LITELLM))


def _pinned(name: str) -> str:
    return PINNED[name][0].partition("==")[2]


def _nginx_config(home: Path, port: int, stub_port: int) -> str:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "\n".join(f"  {kind}_temp_path {home / kind};" for kind in kinds)
    return f"""{"user root;" if os.geteuid() == 0 else ""}
daemon off;
worker_processes 1;
pid {home / "pid"};
error_log {home / "error.log"} error;
events {{ worker_connections 8192; }}
http {{
{temporary}
  access_log off;
  client_body_buffer_size 64k;
  keepalive_timeout 1h;
  keepalive_requests 100000000;
  upstream stub {{
    server 127.0.0.1:{stub_port};
    keepalive 2048;
    keepalive_requests 100000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    location / {{
      proxy_pass http://stub;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


def _envoy_config(port: int, stub_port: int) -> dict[str, object]:
    types = "type.googleapis.com/envoy.extensions.filters"
    router = {"name": "router", "typed_config": {"@type": f"{types}.http.router.v3.Router"}}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "stub", "timeout": "0s"}}
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [router],
    }
    limits = {f"max_{what}": _PLENTY for what in ("connections", "pending_requests", "requests")}
    cluster = {
        "name": "stub",
        "type": "STATIC",
        "connect_timeout": "2s",
        "circuit_breakers": {"thresholds": [limits]},
        "load_assignment": {
            "cluster_name": "stub",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(stub_port)}}]}],
        },
    }
    listener = {
        "address": _address(port),
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _litellm_config(stub_port: int) -> dict[str, object]:
    models = [
        {
            "model_name": business,
            "litellm_params": {
                "model": "hosted_vllm/bench-base",
                "api_base": f"http://127.0.0.1:{stub_port}/v1",
                "api_key": "-",
                "input_cost_per_token": 0,
                "output_cost_per_token": 0,
            },
        }
        for business in BUSINESSES
    ]
    return {"model_list": models, "general_settings": {"master_key": _LITELLM_KEY}}
