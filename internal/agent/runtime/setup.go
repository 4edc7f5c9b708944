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
)

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
		UID                 int    `json:",omitempty"`
		Image               string `json:",omitempty"`
	}{string(l.Owner), l.Setup, l.Workdir, base, l.Env, uid, image})
	if err != nil {
		return nil, fmt.Errorf("plan the set-up: %w", err)
	}

	sum := sha256.Sum256(text)
	key := hex.EncodeToString(sum[:12])

	return &rundir.SetupPlan{Key: key, Dir: filepath.Join(data, rundir.SetupsDir, key)}, nil
}
