package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// checkPython refuses a rank whose Python environment cannot be made.
func checkPython(s rundir.Spec) error {
	p := s.Launch.Python
	if p != nil && (s.Launch.Image != "" || p.File() != "" && !filepath.IsLocal(p.File())) {
		return fault.New(fault.Invalid, "bad_python", "a Python environment is made from files of the working directory, "+
			"for a job without an image").WithField("python")
	}

	return nil
}

// planSetup returns where the set-up of a launch is cached, nil if it has none.
// image is that of the container in which it runs, "" if there is none.
func planSetup(
	data string, l api.Launch, base map[string]string, user *sandbox.User, image string,
) (*rundir.SetupPlan, error) {
	if l.Setup == "" {
		return nil, nil
	}

	uid := 0
	if user != nil {
		uid = user.UID
	}

	// Maps are encoded in the order of their keys, so the text is deterministic.
	text, err := json.Marshal(struct {
		Owner, Setup, Files string
		Base, Env           map[string]string
		UID                 int         `json:",omitempty"`
		Image               string      `json:",omitempty"`
		Python              *job.Python `json:",omitempty"`
	}{string(l.Owner), l.Setup, l.Workdir, base, l.Env, uid, image, l.Python})
	if err != nil {
		return nil, fmt.Errorf("plan the set-up: %w", err)
	}

	sum := sha256.Sum256(text)
	key := hex.EncodeToString(sum[:12])

	return &rundir.SetupPlan{Key: key, Dir: filepath.Join(data, rundir.SetupsDir, key)}, nil
}
