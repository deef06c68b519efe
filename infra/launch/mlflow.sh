#!/usr/bin/env bash
# Starts MLflow with tuneloop's plugin, which keeps who sets aliases in STATE_DIR/control.db; everything else it keeps is
# under STATE_DIR/mlflow. With TUNELOOP_MLFLOW_PASSWORD in the environment people have to log in, `admin` with that
# password. Use: mlflow.sh HOST PORT STATE_DIR
# Ends with 2: wrong arguments, 4: port taken, 5: no disk space, 6: no MLflow.
set -euo pipefail
fail() { echo "mlflow: $2" >&2; exit "$1"; }
[ $# -eq 3 ] || fail 2 "use: mlflow.sh HOST PORT STATE_DIR"
host=$1 port=$2 state=$3
mlflow=$(cd "$(dirname "$0")/../.." && pwd)/.venv/bin/mlflow

[ -x "$mlflow" ] || fail 6 "no MLflow in .venv; \`make setup\` installs it"
if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
  fail 4 "port $port is taken by another program; stop it or change mlflow.url"
fi
mkdir -p "$state/mlflow/artifacts" || fail 5 "cannot make $state/mlflow; free some space or mend state_dir"
home=$(cd "$state/mlflow" && pwd)
free_kb=$(df -Pk "$home" | awk 'NR == 2 { print $4 }')
[ "$free_kb" -ge 204800 ] || fail 5 "$home has $((free_kb / 1024)) MB free, 200 MB are needed; free some space"

key() {  # key NAME: a random one, made once
  if [ ! -s "$home/$1.key" ]; then
    (umask 077; head -c 32 /dev/urandom | base64 | tr '+/' '-_' >"$home/$1.key.new")
    mv "$home/$1.key.new" "$home/$1.key"
  fi
  cat "$home/$1.key"
}

# Webhooks' secrets are stored encrypted. Without a fixed key a restarted server cannot read them, delivers nothing and
# says nothing.
MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY=$(key webhook)
export MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY
# The controller listens on loopback, over http.
export MLFLOW_WEBHOOK_ALLOWED_SCHEMES=http,https MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS=true
export MLFLOW_WEBHOOK_CACHE_TTL=5  # else a new webhook is not seen for a minute
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false  # 8 processes and 1.4 GB that nothing here uses
export MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=true GIT_PYTHON_REFRESH=quiet
if [ -n "${TUNELOOP_MLFLOW_PASSWORD:-}" ]; then
  export MLFLOW_AUTH_ADMIN_PASSWORD=$TUNELOOP_MLFLOW_PASSWORD MLFLOW_AUTH_CONFIG_PATH=$home/login.ini
  MLFLOW_FLASK_SERVER_SECRET_KEY=$(key flask)
  export MLFLOW_FLASK_SERVER_SECRET_KEY
  # Hashing the password of every request takes a second of CPU each time; one worker has no stale copies.
  cat >"$MLFLOW_AUTH_CONFIG_PATH" <<LOGIN
[mlflow]
default_permission = READ
database_uri = sqlite:///$home/logins.db
admin_username = admin
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 60
LOGIN
fi
for secret in "${!TUNELOOP_@}"; do unset "$secret"; done  # none of them is the server's business

TUNELOOP_STATE_DIR=$(cd "$state" && pwd)
export TUNELOOP_STATE_DIR

exec "$mlflow" server --app-name tuneloop --host "$host" --port "$port" --workers 1 \
  --backend-store-uri "sqlite:///$home/mlflow.db" --artifacts-destination "$home/artifacts"
