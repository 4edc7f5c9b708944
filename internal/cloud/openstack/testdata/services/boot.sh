#!/bin/bash
# Runs inside the Debian root that scripts/setup-openstack.sh made, as the first
# process of its own process namespace: when it ends, everything it started ends.
#
#   boot.sh prepare        makes the databases once, in $TEMPLATE
#   boot.sh run            starts the services on a copy of them in /srv/state,
#                          writes /srv/state/env when all answer, and stays
#
# Real: Keystone, Nova with its fake hypervisor, Placement, Glance, RabbitMQ, MariaDB.
# Not real: Neutron. A stub says that there are no ports, so servers have no network.
set -euo pipefail
export LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
here=/srv/services

# database DIR: a MariaDB that answers on DIR/mysql.sock and nowhere else.
database() {
  mariadbd --no-defaults --user=root --datadir="$1/mysql" --socket="$1/mysql.sock" --skip-networking \
    --pid-file="$1/mysql.pid" --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=64M \
    --innodb-log-file-size=16M --max-connections=300 >"$1/mysql.log" 2>&1 &
  until mariadb-admin --no-defaults --socket="$1/mysql.sock" ping >/dev/null 2>&1; do
    kill -0 $! 2>/dev/null || { tail -n 5 "$1/mysql.log" >&2; return 1; }
    sleep 0.2
  done
}

# settings DIR: the configuration of every service for databases and logs in DIR.
settings() {
  local db="connection = mysql+pymysql://root@localhost"
  local at="?unix_socket=$1/mysql.sock&charset=utf8"
  local asked="auth_url = http://127.0.0.1:${KEYSTONE_PORT:-1}/v3
auth_type = password
username = service
password = secret
project_name = service
user_domain_name = Default
project_domain_name = Default
region_name = lab"
  mkdir -p "$1"/etc "$1"/fernet "$1"/images "$1"/locks "$1"/instances "$1"/rabbit
  cat >"$1/etc/keystone.conf" <<END
[DEFAULT]
[database]
$db/keystone$at
[fernet_tokens]
key_repository = $1/fernet
[credential]
key_repository = $1/fernet
[token]
provider = fernet
END
  cat >"$1/etc/placement.conf" <<END
[DEFAULT]
[placement_database]
$db/placement$at
[api]
auth_strategy = keystone
[keystone_authtoken]
www_authenticate_uri = http://127.0.0.1:${KEYSTONE_PORT:-1}/v3
$asked
END
  cat >"$1/etc/glance-api.conf" <<END
[DEFAULT]
enabled_backends = files:file
[database]
$db/glance$at
[glance_store]
default_backend = files
[files]
filesystem_store_datadir = $1/images
[paste_deploy]
flavor = keystone
config_file = /usr/share/glance-common/glance-api-paste.ini
[keystone_authtoken]
www_authenticate_uri = http://127.0.0.1:${KEYSTONE_PORT:-1}/v3
$asked
[oslo_concurrency]
lock_path = $1/locks
END
  cp /usr/share/nova-common/api-paste.ini "$1/etc/"
  cat >"$1/etc/nova.conf" <<END
[DEFAULT]
transport_url = rabbit://guest:guest@127.0.0.1:${RABBIT_PORT:-1}/
compute_driver = fake.FakeDriver
host = fakehost
state_path = $1
instances_path = $1/instances
my_ip = 127.0.0.1
instance_usage_audit = False
reclaim_instance_interval = 0
[api_database]
$db/nova_api$at
[database]
$db/nova$at
[api]
auth_strategy = keystone
max_limit = ${PAGE:-1000}
[wsgi]
api_paste_config = $1/etc/api-paste.ini
[keystone_authtoken]
www_authenticate_uri = http://127.0.0.1:${KEYSTONE_PORT:-1}/v3
$asked
[service_user]
send_service_user_token = true
$asked
[placement]
$asked
[neutron]
endpoint_override = http://127.0.0.1:${NEUTRON_PORT:-1}
$asked
[glance]
endpoint_override = http://127.0.0.1:${GLANCE_PORT:-1}
$asked
[oslo_concurrency]
lock_path = $1/locks
[scheduler]
workers = 1
[conductor]
workers = 1
[filter_scheduler]
track_instance_changes = False
END
}

prepare() {
  local d=$TEMPLATE.new
  rm -rf /srv/template-*
  mkdir -p $d/mysql
  settings $d
  mariadb-install-db --no-defaults --user=root --datadir=$d/mysql --auth-root-authentication-method=normal \
    --skip-test-db >$d/mysql-install.log 2>&1
  database $d
  for name in keystone placement glance nova_api nova nova_cell0; do
    mariadb --no-defaults --socket=$d/mysql.sock -u root -e "CREATE DATABASE $name CHARACTER SET utf8"
  done
  local nova="nova-manage --config-file $d/etc/nova.conf"
  keystone-manage --config-file $d/etc/keystone.conf db_sync
  keystone-manage --config-file $d/etc/keystone.conf fernet_setup --keystone-user root --keystone-group root
  OS_PLACEMENT_CONFIG_DIR=$d/etc placement-manage --config-file $d/etc/placement.conf db sync
  glance-manage --config-file $d/etc/glance-api.conf db_sync
  $nova api_db sync
  # The connections of the cells are templates: they are filled from nova.conf, whose ports differ from run to run.
  $nova cell_v2 map_cell0 --database_connection '{scheme}://{username}@{hostname}/nova_cell0?{query}'
  $nova cell_v2 create_cell --name one --database_connection '{scheme}://{username}@{hostname}/nova?{query}' \
    --transport-url '{scheme}://{username}:{password}@{hostname}:{port}/'
  $nova db sync
  mariadb-admin --no-defaults --socket=$d/mysql.sock -u root shutdown
  wait
  mv "$d" "$TEMPLATE"
}

# serve NAME PORT FILE PROCESSES: a WSGI application. uWSGI closes a connection after every
# answer and must say so, or clients use one again that is just being closed.
serve() {
  uwsgi --plugin python3 --http-socket "127.0.0.1:$2" --add-header "Connection: close" --wsgi-file "$3" --processes "$4" --threads 1 --master \
    --die-on-term --enable-threads --lazy-apps --thunder-lock --buffer-size 65535 --need-app >"$d/$1.log" 2>&1 &
}

# daemon NAME: one of Nova's services.
daemon() {
  python3 -c "import sys; from nova.cmd.$1 import main; sys.exit(main())" --config-file $d/etc/nova.conf >"$d/nova-$1.log" 2>&1 &
}

run() {
  trap 'exit 130' INT TERM # the first process of a namespace hears only what it listens for
  d=/srv/state
  cp -a $TEMPLATE/mysql $TEMPLATE/fernet $d/
  settings $d
  export OS_KEYSTONE_CONFIG_FILES=$d/etc/keystone.conf OS_PLACEMENT_CONFIG_DIR=$d/etc OS_GLANCE_CONFIG_DIR=$d/etc OS_NOVA_CONFIG_DIR=$d/etc
  export HOME=$d RABBITMQ_MNESIA_BASE=$d/rabbit RABBITMQ_LOG_BASE=$d/rabbit RABBITMQ_NODENAME=rabbit@localhost \
    RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT=$RABBIT_PORT RABBITMQ_DIST_PORT=$ERLANG_PORT ERL_EPMD_PORT=$EPMD_PORT \
    ERL_EPMD_ADDRESS=127.0.0.1 RABBITMQ_ENABLED_PLUGINS_FILE=$d/rabbit/plugins RABBITMQ_PID_FILE=$d/rabbit/pid \
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+sbwt none"
  /usr/lib/rabbitmq/bin/rabbitmq-server >$d/rabbit.log 2>&1 &
  python3 $here/neutron.py "$NEUTRON_PORT" >$d/neutron.log 2>&1 &
  database $d
  keystone-manage --config-file $d/etc/keystone.conf bootstrap --bootstrap-password secret --bootstrap-region-id lab \
    --bootstrap-public-url "http://127.0.0.1:$KEYSTONE_PORT/v3" --bootstrap-internal-url "http://127.0.0.1:$KEYSTONE_PORT/v3" \
    >$d/bootstrap.log 2>&1
  serve keystone "$KEYSTONE_PORT" /usr/bin/keystone-wsgi-public 2
  serve placement "$PLACEMENT_PORT" /usr/bin/placement-api 1
  serve glance "$GLANCE_PORT" /usr/bin/glance-wsgi-api 1
  python3 $here/seed.py identity
  until python3 -c "import socket; socket.create_connection(('127.0.0.1', $RABBIT_PORT))" 2>/dev/null; do sleep 0.3; done
  serve nova "$NOVA_PORT" /usr/bin/nova-api-wsgi 2
  daemon conductor
  daemon scheduler
  daemon compute
  python3 $here/seed.py cloud nova-manage --config-file $d/etc/nova.conf cell_v2 discover_hosts
  mv $d/env.new $d/env
  wait -n || true # none of them should end
  echo "a service has ended; see the logs in the folder" >&2
  exit 1
}

"$1"
