package inventory

import (
	"os"
	"os/user"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"trainyard/internal/job"
)

// Process is a process that uses a GPU, with what people need to find its owner.
type Process struct {
	GPU     int
	PID     int
	User    string // "" if unknown
	Program string
	Memory  job.Bytes // bytes of GPU memory
	// Ours says that the process belongs to a run of this node. Seen says that the kernel shows the
	// process at all: one in another container is invisible and may belong to anyone.
	Ours, Seen bool
	Rank       string // name of the rank that it belongs to, see rundir.RankName; "" if it is not known

	paints bool // it draws on a screen and does not compute
}

// maxAncestors bounds how many parents of a process are followed.
const maxAncestors = 64

// introduce adds what the kernel knows about a process. dir holds the runs of this node: each
// process of a run has its rank directory in its environment, or descends from one that has.
func (p *Process) introduce(root, dir string) {
	proc := filepath.Join(root, "proc", strconv.Itoa(p.PID))
	info, err := os.Stat(proc)
	if err != nil {
		return
	}

	p.Seen = true
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		p.User = userName(st.Uid)
	}

	if name := programName(readText(filepath.Join(proc, "cmdline"))); name != "" {
		p.Program = name
	}

	for pid, n := p.PID, 0; pid > 1 && n < maxAncestors && !p.Ours; n++ {
		p.Rank, p.Ours = ofRun(root, pid, dir)
		pid = parent(root, pid)
	}
}

// runsDir is where the run directories are in the data directory.
const runsDir = "runs/"

// ofRun reports whether a process was started for runs below dir, and for which rank. MPS daemons and their servers are
// for several.
func ofRun(root string, pid int, dir string) (rank string, ours bool) {
	environ := readText(filepath.Join(root, "proc", strconv.Itoa(pid), "environ"))
	for entry := range strings.SplitSeq(environ, "\x00") {
		if folder, ok := strings.CutPrefix(entry, rankDirVar); ok {
			rel, err := filepath.Rel(dir, folder)
			if err != nil || !filepath.IsLocal(rel) {
				return "", false
			}

			// It is a folder in the run directory if the program runs as a user of its own.
			name, _ := strings.CutPrefix(rel, runsDir)
			rank, _, _ := strings.Cut(name, "/")

			return rank, true
		}

		if folder, ok := strings.CutPrefix(entry, mpsVar); ok {
			rel, err := filepath.Rel(dir, folder)
			ours = err == nil && filepath.IsLocal(rel)
		}
	}

	return "", ours
}

const (
	// rankDirVar is the variable in which the runtime passes a rank its directory.
	rankDirVar = "TRAINYARD_RANK_DIR="
	// mpsVar is the variable with the sockets of an MPS daemon.
	mpsVar = "CUDA_MPS_PIPE_DIRECTORY="
)

// parent returns the parent of a process, 0 if unknown.
func parent(root string, pid int) int {
	stat := readText(filepath.Join(root, "proc", strconv.Itoa(pid), "stat"))

	// The name in parentheses may contain spaces and parentheses, so the fields are counted from
	// the last one.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}

	up, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}

	return up
}

// programName returns the name by which people know a program: its file, and the script if it is an
// interpreter. The other arguments are left out, because they may hold secrets.
func programName(cmdline string) string {
	args := strings.Split(strings.TrimRight(cmdline, "\x00"), "\x00")
	name := path.Base(args[0])

	if args[0] == "" {
		return ""
	}

	if strings.HasPrefix(name, "python") {
		for _, arg := range args[1:] {
			if strings.HasSuffix(arg, ".py") {
				return word(name + " " + path.Base(arg))
			}
		}
	}

	return word(name)
}

// userName returns the name of a user of this machine, or the numeric ID if there is no name.
func userName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	u, err := user.LookupId(number)
	if err != nil {
		return "user " + number
	}

	return word(u.Username)
}
