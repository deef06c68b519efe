"""Start a gateway: `python -m pipeline.gateway --configs configs --state-dir var [--worker NAME]`."""

import argparse
import asyncio
import gc
import logging
import signal
import socket
import sys
from pathlib import Path

import uvloop
from sqlalchemy.exc import SQLAlchemyError

from pipeline.config import Config, Settings, load_config, load_settings
from pipeline.control import open_control
from pipeline.errors import ConfigError, PipelineError
from pipeline.gateway.gateway import Gateway

log = logging.getLogger("pipeline.gateway")


def main() -> int:
    """Serve until SIGTERM or SIGINT; 0 after a clean stop, 2 when it cannot start."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.gateway", description="The OpenAI-compatible gateway.")
    parser.add_argument("--configs", type=Path, required=True, help="folder with tuneloop.yaml and businesses/")
    parser.add_argument("--state-dir", type=Path, help="where state is kept; default: state_dir of tuneloop.yaml")
    parser.add_argument("--worker", default="gateway", help="name of this worker's event segments; one process a name")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        config = load_config(arguments.configs)
        settings = load_settings()
        state_dir = (arguments.state_dir or config.state_dir).resolve()
        sockets = _bind(config)
        uvloop.run(_serve(config, settings, state_dir, arguments.worker, sockets))
    except (PipelineError, OSError, SQLAlchemyError) as error:
        sys.stderr.write(f"gateway: {_line(error)}\n")
        return 2
    return 0


async def _serve(
    config: Config, settings: Settings, state_dir: Path, worker: str, sockets: tuple[socket.socket, socket.socket]
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    state_dir.mkdir(parents=True, exist_ok=True)
    database = open_control(f"sqlite:///{state_dir / 'control.db'}")
    gateway = Gateway(config, settings, state_dir, worker, database)
    await gateway.start(*sockets)
    gc.freeze()  # what is loaded now lives as long as the process: the collector need not look at it again
    section = config.system.gateway
    log.info("serving http://%s:%d, admin on port %d", section.host, section.port, section.admin_port)
    await stop.wait()
    log.info("stopping: running answers finish first")
    await gateway.stop()


def _bind(config: Config) -> tuple[socket.socket, socket.socket]:
    gateway = config.system.gateway
    return _listening(gateway.host, gateway.port, "port"), _listening(gateway.host, gateway.admin_port, "admin_port")


def _listening(host: str, port: int, key: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(2048)
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"{host}:{port}: {error.strerror}; stop what holds it, or set another gateway.{key} in tuneloop.yaml"
        ) from error
    return sock


def _line(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'system'}: {error.strerror}; free or mend it and start again"
    if isinstance(error, SQLAlchemyError):
        return f"control database: {' '.join(str(error).split())[:300]}"
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
