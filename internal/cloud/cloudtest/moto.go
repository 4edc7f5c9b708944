package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// ErrNoMoto says that moto is not installed on this machine.
var ErrNoMoto = errors.New("no moto on this machine: scripts/setup-moto.sh installs it")

// serveMoto starts moto's own server with one request at a time, because its tables are not safe
// for several threads. Connections have threads of their own: one on which nothing comes must not hold up the others.
const serveMoto = `
import sys
import threading
from werkzeug.serving import run_simple
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

moto, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()

def one_at_a_time(environ, start_response):
    with turn:
        return list(moto(environ, start_response))

run_simple("127.0.0.1", int(sys.argv[1]), one_at_a_time, threaded=True)
`

// StartMoto starts moto on a free port, with its optional checks of types and images. It ends with
// Stop, or with the program that started it.
func StartMoto() (*Server, error) {
	python, err := motoPython()
	if err != nil {
		return nil, err
	}

	return StartServer("moto", "/moto-api/", func(port string) *exec.Cmd {
		cmd := exec.CommandContext(context.Background(), python, "-c", serveMoto, port)
		cmd.Env = append(os.Environ(), "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION=true", "MOTO_ENABLE_AMI_VALIDATION=true")

		return cmd
	})
}

// SkipMoto skips tb because moto did not start, or fails it where moto is required.
func SkipMoto(tb testing.TB, err error) {
	tb.Helper()

	if errors.Is(err, ErrNoMoto) && os.Getenv("CI") != "true" {
		tb.Skip("needs moto: ", err)
	}

	tb.Fatal("needs moto: ", err)
}

// motoPython returns the Python interpreter of the moto version that scripts/setup-moto.sh
// installs.
func motoPython() (string, error) {
	version, err := Pinned("setup-moto.sh", "MOTO_VERSION")
	if err != nil {
		return "", err
	}

	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNoMoto, err)
	}

	folder := filepath.Join(cache, "trainyard", "moto-"+version)

	if _, err := os.Stat(filepath.Join(folder, ".complete")); err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNoMoto, err)
	}

	return filepath.Join(folder, "bin", "python"), nil
}
