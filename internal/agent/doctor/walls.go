package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// secret files and folders below the data directory, and what they hold.
var secrets = []struct{ path, what string }{
	{"", "all data"},
	{"ca/ca.pem", "the key of the yard's CA"},
	{"yard.db", "the database"},
	{"hire.key", "the key of join tokens"},
	{"agent", "the agent's data"},
	{"agent/identity", "the node's key"},
	{"agent/identity/node.pem", "the node's key"},
}

// files checks that other users of the machine cannot read keys and data.
func (s *System) files() []Finding {
	const check = "files"

	var list []Finding

	found := 0
	for _, secret := range secrets {
		path := filepath.Join(s.Data, secret.path)

		info, err := os.Stat(path)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				list = append(list, warn(check, "run doctor as the user of the agent or the server", "cannot look at %s: %v", path, err))
			}

			continue
		}

		found++

		open := fs.FileMode(0o077)
		if info.IsDir() {
			open = 0o066 // passing through is harmless, if one cannot list
		}

		if info.Mode().Perm()&open != 0 {
			list = append(list, fail(check, "chmod go= "+path, "%s holds %s and has mode %04o: other users of this machine have "+
				"access to it", path, secret.what, info.Mode().Perm()))
		}
	}

	if len(list) == 0 && found > 0 {
		list = append(list, ok(check, "only their owner can read keys and data in %s", s.Data))
	}

	return list
}

// neighbours checks whether jobs share a user id with the server.
func (s *System) neighbours() Finding {
	const check = "server"

	switch shared := SharedWithServer(s.Root, s.Data, s.UID); {
	case shared == "":
		return ok(check, "no server on this machine runs as the agent's user or keeps its files in %s", s.Data)
	default:
		return warn(check, "run the server as a user of its own, with another --data",
			"%s: a job here can read its CA key and its database and become an admin", shared)
	}
}

// SharedWithServer says what a server on this machine shares with an agent, "" if it shares nothing: the data directory,
// or the user id.
func SharedWithServer(root, data string, uid int) string {
	for _, name := range []string{"ca", "yard.db"} {
		if _, err := os.Stat(filepath.Join(data, name)); err == nil {
			return "a server keeps its files in " + data
		}
	}

	processes, _ := filepath.Glob(filepath.Join(root, "/proc/[0-9]*")) // it fails for a bad pattern only
	for _, dir := range processes {
		info, err := os.Stat(dir)
		if err != nil {
			continue // it has ended
		}

		owner, _ := info.Sys().(*syscall.Stat_t)
		if owner == nil || int(owner.Uid) != uid {
			continue
		}

		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		args := strings.Split(string(line), "\x00")
		if err == nil && len(args) > 1 && filepath.Base(args[0]) == "trainyard" && args[1] == "server" {
			return fmt.Sprintf("a server runs as the same user (process %s, user id %d)", filepath.Base(dir), uid)
		}
	}

	return ""
}
