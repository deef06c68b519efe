"""Start a gateway: `python -m pipeline.gateway --configs configs --state-dir var [--worker NAME]`."""

import argparse
import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import uvloop
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from pipeline.config import GatewayConfig, load_config, load_settings
from pipeline.control import open_control_in
from pipeline.errors import ConfigError, PipelineError
from pipeline.gateway.gateway import Gateway
from pipeline.gateway.workers import CANNOT_START, supervise

log = logging.getLogger("pipeline.gateway")

Sockets = tuple[socket.socket, socket.socket]


def main() -> int:
    """Serve until SIGTERM or SIGINT; 0 after a clean stop, 2 when it cannot start."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.gateway", description="The OpenAI-compatible gateway.")
    parser.add_argument("--configs", type=Path, required=True, help="folder with tuneloop.yaml and businesses/")
    parser.add_argument("--state-dir", type=Path, help="where state is kept; default: state_dir of tuneloop.yaml")
    parser.add_argument(
        "--worker",
        default="gateway",
        help="name of the event segments; two gateways on one state folder need two names",
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        config = load_config(arguments.configs)
        settings = load_settings()
        sockets = _bind(config.system.gateway)
        state_dir = (arguments.state_dir or config.state_dir).resolve()
        open_control_in(state_dir).dispose()  # makes the tables once, before several workers would
    except (PipelineError, OSError, SQLAlchemyError) as error:
        return _cannot_start(error)

    def serve(number: int) -> int:
        worker = arguments.worker if number == 0 else f"{arguments.worker}-{number}"
        try:
            gateway = partial(Gateway, config, settings, state_dir, worker)
            uvloop.run(_serve(gateway, state_dir, sockets[number]))
        except (PipelineError, OSError, SQLAlchemyError) as error:
            return _cannot_start(error)
        return 0

    return serve(0) if len(sockets) == 1 else supervise(len(sockets), serve)


async def _serve(make_gateway: Callable[[Engine], Gateway], state_dir: Path, sockets: Sockets) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    gateway = make_gateway(open_control_in(state_dir))
    await gateway.start(*sockets)
    gc.freeze()  # what is loaded now lives as long as the process: the collector need not look at it again
    gc.set_threshold(50_000, 20, 100)  # a request leaves no cycles behind: look for some less often
    host, port = sockets[0].getsockname()[:2]
    log.info("serving http://%s:%d, admin on port %d", host, port, sockets[1].getsockname()[1])
    await stop.wait()
    log.info("stopping: running answers finish first")
    await gateway.stop()


def _bind(gateway: GatewayConfig) -> list[Sockets]:
    """The data and the admin socket of each worker."""
    shared = len(gateway.admin_ports) > 1
    return [
        (_listening(gateway.host, gateway.port, "port", shared), _listening(gateway.host, port, "admin_port", False))
        for port in gateway.admin_ports
    ]


def _listening(host: str, port: int, key: str, shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind((host, port))
        sock.listen(2048)
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"{host}:{port}: {error.strerror}; stop what holds it, or set another gateway.{key} in tuneloop.yaml"
        ) from error
    return sock


def _cannot_start(error: Exception) -> int:
    sys.stderr.write(f"gateway: {_line(error)}\n")
    return CANNOT_START


def _line(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'system'}: {error.strerror}; free or mend it and start again"
    if isinstance(error, SQLAlchemyError):
        return f"control database: {' '.join(str(error).split())[:300]}"
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
