package doctor

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"trainyard/internal/agent/metadata"
	"trainyard/internal/humanize"
)

// exists reports whether a file of the system is there.
func (s *System) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(s.Root, path))
	return err == nil
}

// needed is how bad it is that something is missing that isolation needs.
func (s *System) needed(check, remedy, format string, args ...any) Finding {
	if s.Isolated {
		return fail(check, remedy, format, args...)
	}

	return warn(check, remedy, format, args...)
}

func (s *System) namespaces() Finding {
	const check = "namespaces"

	var missing []string
	for _, name := range []string{"pid", "mnt", "ipc"} {
		if !s.exists("/proc/self/ns/" + name) {
			missing = append(missing, name)
		}
	}

	if len(missing) > 0 {
		return s.needed(check, "use a kernel with namespaces", "the kernel has no %s namespaces", humanize.List(missing...))
	}

	return ok(check, "pid, mount and IPC namespaces are available")
}

func (s *System) seccomp() Finding {
	const check = "seccomp"

	if !s.exists("/proc/sys/kernel/seccomp/actions_avail") {
		return warn(check, "use a kernel with CONFIG_SECCOMP_FILTER",
			"the kernel cannot filter system calls: jobs can use all that their user may use")
	}

	return ok(check, "system calls of jobs can be filtered")
}

// users checks that no one else has a user id of the range that jobs get.
func (s *System) users() []Finding {
	const check = "user ids"

	if !s.Isolated || s.Jobs.Accounts {
		return nil
	}

	var taken []string

	for _, file := range []struct {
		path   string
		count  bool // it lists ranges, with their length
		noun   string
		column int
	}{
		{"/etc/passwd", false, "user", 2}, {"/etc/group", false, "group", 2},
		{"/etc/subuid", true, "subordinate user ids of", 1}, {"/etc/subgid", true, "subordinate group ids of", 1},
	} {
		found, err := s.overlaps(file.path, file.column, file.count)
		if err != nil {
			return []Finding{fail(check, "make it readable", "cannot read %s: %v", file.path, err)}
		}

		for _, name := range found {
			taken = append(taken, fmt.Sprintf("%s %s (%s)", file.noun, name, file.path))
		}
	}

	if len(taken) == 0 {
		return []Finding{ok(check, "nobody else has a user id from %d to %d", s.Jobs.First, s.Jobs.Last)}
	}

	const most = 3
	if more := len(taken) - most; more > 0 {
		taken = append(taken[:most], humanize.Count(more, "other"))
	}

	return []Finding{fail(check, "choose a range that nobody uses with --job-uids, the same on all nodes",
		"user ids of jobs, %d to %d, belong also to %s", s.Jobs.First, s.Jobs.Last, humanize.List(taken...))}
}

// overlaps lists the names in a file like /etc/passwd or /etc/subuid whose ids are among those of jobs.
func (s *System) overlaps(path string, column int, ranges bool) (names []string, err error) {
	f, err := os.Open(filepath.Join(s.Root, path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, f.Close()) }()

	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) <= column+1 && ranges || len(fields) <= column {
			continue
		}

		first, err := strconv.ParseUint(fields[column], 10, 32)
		if err != nil {
			continue // a line of a name service
		}

		last := first

		if ranges {
			count, err := strconv.ParseUint(fields[column+1], 10, 32)
			if err != nil || count == 0 {
				continue
			}

			last = first + count - 1
		}

		if first <= uint64(s.Jobs.Last) && last >= uint64(s.Jobs.First) && !slices.Contains(names, fields[0]) {
			names = append(names, fields[0])
		}
	}

	return names, lines.Err()
}

// vendors are what the firmware of machines of clouds says.
var vendors = []string{"Amazon EC2", "Google", "Microsoft Corporation", "OpenStack", "Alibaba Cloud", "Oracle"}

// inCloud reports whether the firmware says that this is a machine of a cloud.
func (s *System) inCloud() bool {
	for _, name := range []string{"sys_vendor", "product_name", "chassis_asset_tag"} {
		text, err := os.ReadFile(filepath.Join(s.Root, "/sys/class/dmi/id", name))
		if err == nil && slices.ContainsFunc(vendors, func(v string) bool { return strings.Contains(string(text), v) }) {
			return true
		}
	}

	return false
}

func (s *System) metadata() Finding {
	const check = "metadata"

	user, ranged := s.UID, s.Isolated && !s.Jobs.Accounts
	if ranged {
		user = s.Jobs.First + 1
	}

	reach, err := s.Metadata(user)

	switch {
	case err != nil:
		return warn(check, "use a kernel with policy routing", "cannot tell whether jobs reach a metadata service: %v", err)
	case reach == metadata.Blocked:
		return ok(check, "jobs cannot reach a cloud's metadata service")
	case reach == metadata.NoRoute:
		return ok(check, "a cloud's metadata service cannot be reached from here")
	case !s.inCloud():
		return ok(check, "the firmware names no cloud that is known")
	case ranged:
		return warn(check, "start the agent, which blocks it",
			"jobs can read the credentials of this machine from the cloud's metadata service")
	}

	return warn(check,
		"run the agent as root with --isolation users and without --job-accounts, or give the machine no role",
		"jobs can read the credentials of this machine from the cloud's metadata service")
}

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
				list = append(list, warn(check, "run doctor as the user of the agent or the server",
					"cannot look at %s: %v", path, err))
			}

			continue
		}

		found++

		open := fs.FileMode(0o077)
		if info.IsDir() {
			open = 0o066 // passing through is harmless, if one cannot list
		}

		if info.Mode().Perm()&open != 0 {
			list = append(list, fail(check, "chmod go= "+path,
				"%s holds %s and has mode %04o: other users of this machine have "+
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
	case s.Isolated:
		return ok(check, "%s; jobs have other user ids", shared)
	default:
		return warn(check,
			"run the server as a user of its own, with another --data, or the agent as root with --isolation users",
			"%s: a job here can read its CA key and its database and become an admin", shared)
	}
}

// SharedWithServer says what a server on this machine shares with an agent, "" if it shares nothing: the data
// directory, or the user id.
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
