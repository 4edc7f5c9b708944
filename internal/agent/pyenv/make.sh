# Makes a Python environment. Before this text stand: method, tool, version, dir, prefix, source, packages, the function
# list, which prints the packages of the job file, and the interpreters that may be used as $@. It is read by bash -e or sh -e.

fail() {
  printf 'trainyard: %s\n' "$*" >&2
  exit 1
}

# installed prints which versions of Python uv finds here.
installed() {
  printf 'trainyard: versions of Python here: %s\n' \
    "$("$tool" python list --only-installed 2>/dev/null | sed -n 's/^cpython-\([0-9.]*\)[^0-9.].*/\1/p' | sort -uV | tr '\n' ' ')" >&2
}

unset VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT UV_PROJECT_ENVIRONMENT

if [ "$packages" -gt 0 ]; then
  source=$dir/requirements.txt
  list >"$source"
fi

case $method in
uv*)
  # Nothing of the environment may be shared with a cache that later runs can write to, and later runs cannot compile.
  export UV_LINK_MODE=copy UV_PYTHON_INSTALL_DIR="$dir/python" UV_NO_PROGRESS=1
  export UV_COMPILE_BYTECODE="${UV_COMPILE_BYTECODE:-1}"
  # uv does not read the settings of pip.
  if [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ] && [ -n "${PIP_INDEX_URL:-}" ]; then
    export UV_DEFAULT_INDEX="$PIP_INDEX_URL"
  fi
  if [ -z "${UV_INDEX:-}${UV_EXTRA_INDEX_URL:-}" ] && [ -n "${PIP_EXTRA_INDEX_URL:-}" ]; then
    export UV_INDEX="$PIP_EXTRA_INDEX_URL"
  fi
  ;;
esac

case $method in
uv-lock)
  UV_PROJECT_ENVIRONMENT=$prefix "$tool" sync --frozen --no-install-project --no-install-workspace --no-editable \
    --project "$source" ${version:+--python "$version"} || {
    installed
    exit 1
  }
  ;;
uv)
  "$tool" venv --quiet --no-project ${version:+--python "$version"} "$prefix" || {
    installed
    exit 1
  }
  if [ -n "$source" ]; then
    "$tool" pip install --python "$prefix/bin/python" -r "$source"
  fi
  ;;
venv)
  found= seen= wanted=${version:+$version.}
  for python in "$@"; do
    have=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue
    case "$have." in
    "$wanted"*)
      found=$python
      break
      ;;
    esac
    seen="$seen $have"
  done
  [ -n "$found" ] || fail "Python $version is not available here; there are:${seen:- none}"
  "$found" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$found has no venv or no pip: its operator can install them, on Debian as python3-venv, or uv"
  "$found" -m venv "$prefix"
  if [ -n "$source" ]; then
    "$prefix/bin/python" -m pip install --no-input --disable-pip-version-check --progress-bar off -r "$source"
  fi
  ;;
micromamba)
  export MAMBA_ROOT_PREFIX="${XDG_CACHE_HOME:-$HOME/.cache}/mamba"
  "$tool" create --yes --always-copy --prefix "$prefix" --file "$source"
  ;;
conda)
  export CONDA_PKGS_DIRS="${CONDA_PKGS_DIRS:-${XDG_CACHE_HOME:-$HOME/.cache}/conda}"
  export CONDA_ALWAYS_COPY=true CONDA_ALWAYS_YES=true
  "$tool" env create --quiet --prefix "$prefix" --file "$source"
  ;;
esac
