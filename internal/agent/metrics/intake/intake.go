// Package intake is the agent's HTTP endpoint for training metrics: a simple JSON form for
// any language, the status messages that Hugging Face's Trainer sends by itself, and the
// part of MLflow's API that its client needs for logging.
//
// It listens on loopback only, and every run has its own token. Accepted points are appended to a file of the run,
// which package metrics reads, so a successful reply means that the point survives the agent. The port is stored: a
// program that runs while the agent is replaced finds the next agent at the same address.
package intake

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"trainyard/internal/atomicfile"
	"trainyard/internal/clock"
	"trainyard/internal/id"
)

// Names inside the folder of the intake.
const (
	secretFile   = "secret"
	portFile     = "port"
	tokenSuffix  = ".token"         // of the file with the token of a rank
	receivedFile = "received.jsonl" // in the folder of a rank, which is made when it sends something
)

// Intake takes what programs send. Open it, give each run its Env, and Close it.
type Intake struct {
	dir    string
	secret []byte
	log    *slog.Logger
	clk    clock.Clock
	server *http.Server
	addr   string
	done   chan struct{}

	mu   sync.Mutex
	runs map[string]*run
}

// Open begins to listen. The folder is made if it is not there. That the port of the last time is taken is no error:
// programs that were told of it are not heard any more, and new ones are told of another.
func Open(ctx context.Context, dir string, clk clock.Clock, log *slog.Logger) (*Intake, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the intake folder: %w", err)
	}

	i := &Intake{dir: dir, log: log, clk: clk, runs: map[string]*run{}, done: make(chan struct{})}
	if err := i.openSecret(); err != nil {
		return nil, err
	}

	listener, err := i.listen(ctx)
	if err != nil {
		return nil, err
	}

	i.addr = listener.Addr().String()
	i.server = &http.Server{
		Handler: i.handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}

	go func() {
		defer close(i.done)

		if err := i.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			i.log.Error("metrics endpoint failed", "error", err)
		}
	}()

	return i, nil
}

// Address is where the intake listens on the machine. Containers with networks of their own find it at the same address
// there, see Serve.
func (i *Intake) Address() string { return i.addr }

// Serve answers on one more listener until that, or the intake, is closed.
func (i *Intake) Serve(listener net.Listener) {
	err := i.server.Serve(listener)
	if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		i.log.Error("metrics endpoint of a container failed", "error", err)
	}
}

// Close stops listening.
func (i *Intake) Close() error {
	err := i.server.Close()
	<-i.done
	return err
}

// openSecret reads what tokens are made from, or makes it up the first time.
func (i *Intake) openSecret() error {
	path := filepath.Join(i.dir, secretFile)
	text, err := os.ReadFile(path)
	if err == nil && len(text) == sha256.Size {
		i.secret = text
		return nil
	}

	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the intake secret: %w", err)
	}

	i.secret = make([]byte, sha256.Size)
	if _, err := rand.Read(i.secret); err != nil {
		return fmt.Errorf("generate the intake secret: %w", err)
	}

	return atomicfile.Write(path, i.secret, atomicfile.SingleWriter())
}

// listen opens the port of the last time, or another.
func (i *Intake) listen(ctx context.Context) (net.Listener, error) {
	var config net.ListenConfig
	path := filepath.Join(i.dir, portFile)
	if text, err := os.ReadFile(path); err == nil {
		if port, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 16); err == nil {
			listener, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.FormatUint(port, 10)))
			if err == nil {
				return listener, nil
			}

			i.log.Warn(
				"intake port is in use by another process, running programs can no longer send metrics",
				"port",
				port,
				"error",
				err,
			)
		}
	}

	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}

	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err == nil {
		err = atomicfile.Write(path, []byte(port), atomicfile.SingleWriter())
	}

	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}

	return listener, nil
}

// name is how a rank is called in addresses.
func name(run id.Run, rank int) string { return string(run) + "." + strconv.Itoa(rank) }

// TokenFileVar is the variable with the path of the file with the token of a rank.
const TokenFileVar = "KUBEFLOW_TRAINER_SERVER_TOKEN"

// Env makes room for a rank and returns the variables by which its program finds the intake. With
// mlflow its MLflow client is pointed here too.
func (i *Intake) Env(r id.Run, rank int, mlflow bool) (map[string]string, error) {
	n := name(r, rank)

	// It need not survive a power cut, which no program does, and whoever is killed here is asked again before the
	// program starts. A program that runs as another user reads it. It is shown the file; the directory is closed to
	// everybody else.
	token, path := i.token(n), i.tokenPath(n)
	if err := os.WriteFile(path, []byte(token), 0o644); err != nil { //nolint:gosec // see above
		return nil, fmt.Errorf("write the metrics token of %s: %w", n, err)
	}
	if err := os.Chmod(path, 0o644); err != nil { //nolint:gosec // whatever the umask
		return nil, err
	}

	base := "http://" + i.addr + "/v1/" + n
	env := map[string]string{
		"TRAINYARD_METRICS_URL":   base + "/metrics",
		"TRAINYARD_METRICS_TOKEN": token,
		// Hugging Face's Trainer sends its status if it finds these.
		"KUBEFLOW_TRAINER_SERVER_URL": base + "/status",
		TokenFileVar:                  path,
	}

	if mlflow {
		env["MLFLOW_TRACKING_URI"] = base + "/mlflow"
		env["MLFLOW_TRACKING_TOKEN"] = token
	}

	return env, nil
}

// tokenPath is the file with the token of a rank.
func (i *Intake) tokenPath(name string) string { return filepath.Join(i.dir, name+tokenSuffix) }

// Received is the file of what a rank's program has sent.
func (i *Intake) Received(r id.Run, rank int) string {
	return filepath.Join(i.dir, name(r, rank), receivedFile)
}

// Forget drops what a rank has sent. Nothing is taken from it any more.
func (i *Intake) Forget(r id.Run, rank int) error {
	n := name(r, rank)
	i.mu.Lock()
	defer i.mu.Unlock()

	delete(i.runs, n)
	if err := errors.Join(os.RemoveAll(i.tokenPath(n)), os.RemoveAll(filepath.Join(i.dir, n))); err != nil {
		return fmt.Errorf("remove the metrics of %s: %w", n, err)
	}

	return nil
}

// token is that of a rank. It is made from the secret, so that it need not be kept.
func (i *Intake) token(name string) string {
	mac := hmac.New(sha256.New, i.secret)
	mac.Write([]byte(name))
	return hex.EncodeToString(mac.Sum(nil))
}

// knows reports whether a request brings the token of the rank it is about.
func (i *Intake) knows(r *http.Request, name string) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && subtle.ConstantTimeCompare([]byte(strings.TrimSpace(token)), []byte(i.token(name))) == 1
}

// Prune drops what was sent by ranks for which keep is false.
func (i *Intake) Prune(keep func(name string) bool) error {
	entries, err := os.ReadDir(i.dir)
	if err != nil {
		return fmt.Errorf("list received metrics: %w", err)
	}

	var errs []error
	for _, e := range entries {
		rank, token := strings.CutSuffix(e.Name(), tokenSuffix)
		if (token || e.IsDir()) && !keep(rank) {
			errs = append(errs, os.RemoveAll(filepath.Join(i.dir, e.Name())))
		}
	}

	return errors.Join(errs...)
}
