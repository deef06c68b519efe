#!/usr/bin/env bash
# Starts the stock Prefect server on loopback. Use: prefect.sh HOST PORT STATE_DIR
set -euo pipefail
host=$1 port=$2 state=$3
cd "$(dirname "$0")/../.."
mkdir -p "$state/prefect"
export PREFECT_HOME=$state/prefect
export PREFECT_API_DATABASE_CONNECTION_URL=sqlite+aiosqlite:///$state/prefect/prefect.db
# The page asks port 4200 unless it is told where the API is.
export PREFECT_UI_API_URL=http://$host:$port/api
export PREFECT_SERVER_ANALYTICS_ENABLED=false DO_NOT_TRACK=1
export PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS=5
exec .venv/bin/prefect server start --host "$host" --port "$port"
