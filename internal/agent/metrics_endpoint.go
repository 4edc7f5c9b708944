package agent

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"

	"trainyard/internal/agent/metrics/intake"
	"trainyard/internal/agent/runtime"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/atomicfile"
	"trainyard/internal/job"
)

// openIntake begins to listen for what programs send. Without it the rest works.
func (a *Agent) openIntake() {
	in, err := intake.Open(context.Background(), a.path("intake"), a.clk, a.log)
	a.noteProblem("metrics endpoint", err)

	if err == nil {
		a.intake = in
	}
}

// endpoint returns where the intake listens, and serves it on a listener in the network of a container; "" if there is
// no intake.
func (a *Agent) endpoint() (address string, serve func(net.Listener)) {
	if a.intake == nil {
		return "", nil
	}

	return a.intake.Address(), a.intake.Serve
}

func (a *Agent) closeIntake() error {
	if a.intake == nil {
		return nil
	}

	return a.intake.Close()
}

// programEnv returns the variables by which a program finds the SDK and, if it is the first rank, the intake.
func (a *Agent) programEnv(want api.Assignment) (map[string]string, error) {
	env := map[string]string{}

	if a.intake != nil && want.Rank == 0 {
		mlflow := slices.ContainsFunc(want.Launch.Metrics, func(r job.MetricRule) bool { return r.MLflow })
		var err error
		env, err = a.intake.Env(want.Run, want.Rank, mlflow)
		if err != nil {
			return nil, err
		}
	}

	if a.sdk != "" {
		env[runtime.SDKVar] = a.sdk
	}

	return env, nil
}

// visible lists what a program may read in the data directory besides its own folders, if it runs as another user.
func (a *Agent) visible(k key, env map[string]string) []string {
	list := a.data.cache.Visible(nameOf(k))
	for _, name := range []string{runtime.SDKVar, intake.TokenFileVar} {
		if path := env[name]; path != "" {
			list = append(list, path)
		}
	}

	return list
}

// SDK is the wheel of the Python SDK.
type SDK struct {
	Name string // of its file
	Data []byte
}

// placeSDK puts the wheel where programs find it. Its name carries its version, so that programs that run keep theirs.
func (a *Agent) placeSDK() error {
	if a.cfg.SDK.Name == "" {
		return nil
	}
	if err := os.MkdirAll(a.path("sdk"), 0o700); err != nil {
		return err
	}

	path := filepath.Join(a.path("sdk"), filepath.Base(a.cfg.SDK.Name))
	if there, err := os.ReadFile(path); err != nil || !bytes.Equal(there, a.cfg.SDK.Data) {
		if err := atomicfile.Write(path, a.cfg.SDK.Data, atomicfile.SingleWriter()); err != nil {
			return err
		}
	}

	// Programs that run as other users read it. They are shown the file, and cannot reach it otherwise.
	if err := os.Chmod(path, 0o644); err != nil { //nolint:gosec // see above
		return err
	}

	a.sdk = path

	return nil
}

// forgetIntake drops what a rank has sent.
func (a *Agent) forgetIntake(k key) error {
	if a.intake == nil || k.rank != 0 {
		return nil
	}

	return a.intake.Forget(k.run, k.rank)
}

// pruneIntake drops what ranks have sent that are not here any more.
func (a *Agent) pruneIntake(here []rundir.Status) {
	if a.intake == nil {
		return
	}

	a.noteProblem("metrics cleanup", a.intake.Prune(func(name string) bool {
		return slices.ContainsFunc(here, func(st rundir.Status) bool { return nameOf(key{st.Run, st.Rank}) == name })
	}))
}
