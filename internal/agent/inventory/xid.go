package inventory

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// xid is an error that the NVIDIA driver has told of: a number that says what
// happened, to whom, and when.
type xid struct {
	at      time.Time
	bus     string // of the GPU, as busName writes it
	uuid    string // of the GPU, if the bus is not told
	code    int
	pid     int    // of the process that did it or suffered it, 0 if not told
	program string // its name
	// settled says that it tells of the end of a trouble, not of a new one.
	settled bool
}

// blameless are the Xids that a program causes by its own mistake: the GPU is in
// order after them.
var blameless = []int{13, 31, 43, 45, 68, 109}

// fatal reports whether the GPU may not be used after it.
func (x *xid) fatal() bool { return !x.settled && !slices.Contains(blameless, x.code) }

// meanings says in a few words what an Xid means.
var meanings = map[int]string{
	8:   "GPU stopped processing",
	13:  "graphics engine exception",
	31:  "GPU memory page fault",
	32:  "corrupted push buffer stream",
	38:  "driver firmware error",
	43:  "GPU stopped processing a program",
	45:  "preemptive cleanup of a program",
	48:  "uncorrectable memory error",
	61:  "internal micro-controller halt",
	62:  "internal micro-controller halt",
	63:  "memory page retired or row remapped",
	64:  "memory page retirement or row remapping failed",
	68:  "video processor exception",
	69:  "graphics engine class error",
	74:  "NVLink error",
	79:  "fell off the bus",
	92:  "high rate of corrected memory errors",
	94:  "contained memory error",
	95:  "uncontained memory error",
	109: "context switch timeout",
	119: "GSP RPC timeout",
	120: "GSP error",
	140: "unrecovered memory error",
	143: "GPU initialization failed",
	154: "GPU recovery action changed",
}

// evidence says what happened, to whom and when.
func (x *xid) evidence() string {
	text := fmt.Sprintf("Xid %d", x.code)
	if m := meanings[x.code]; m != "" {
		text += ": " + m
	}

	if x.pid > 0 && x.program != "" {
		text += fmt.Sprintf(" (%s, process %d)", x.program, x.pid)
	} else if x.pid > 0 {
		text += fmt.Sprintf(" (process %d)", x.pid)
	}

	return text + ", " + moment(x.at)
}

// moment writes a time for people who may sit in another time zone.
func moment(t time.Time) string { return t.UTC().Format("Jan 2 15:04 UTC") }

// xidLine is how the driver writes an Xid into the kernel's log. Old drivers
// name no process; a slice of a GPU follows its address.
var xidLine = regexp.MustCompile(`^NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): ([0-9]{1,5}),?(.*)$`)

var (
	xidPID  = regexp.MustCompile(`\bpid='?([0-9]{1,10})\b`)
	xidName = regexp.MustCompile(`\bname=([^,]{1,64})`)
)

// parseXid reads a line of the kernel's log.
func parseXid(line string) (xid, bool) {
	m := xidLine.FindStringSubmatch(line)
	if m == nil {
		return xid{}, false
	}

	code, err := strconv.Atoi(m[2])

	bus := busName(m[1])
	if err != nil || bus == "" {
		return xid{}, false
	}

	x := xid{bus: bus, code: code}
	if p := xidPID.FindStringSubmatch(m[3]); p != nil {
		if pid, err := strconv.ParseInt(p[1], 10, 32); err == nil {
			x.pid = int(pid)
		}
	}

	if p := xidName.FindStringSubmatch(m[3]); p != nil {
		x.program = word(p[1])
	}

	if strings.Contains(x.program, "<unknown>") {
		x.program = ""
	}

	x.settled = code == 154 && strings.Contains(m[3], "to 0x0 ")

	return x, true
}

// sameXid is within what time the same Xid from two sources is one: the driver's
// own event and the kernel's line differ by moments.
const sameXid = time.Minute

// mergeXids puts what several sources tell in order and drops what is told
// twice. Of two the one that names the process is kept.
func mergeXids(all []xid) []xid {
	slices.SortStableFunc(all, func(a, b xid) int { return a.at.Compare(b.at) })
	var out []xid
	for _, x := range all {
		i := slices.IndexFunc(out, func(o xid) bool {
			return o.code == x.code && o.uuid == x.uuid && x.at.Sub(o.at) < sameXid &&
				(o.pid == 0 || x.pid == 0 || o.pid == x.pid)
		})

		switch {
		case i < 0:
			out = append(out, x)
		case out[i].pid == 0:
			out[i].pid, out[i].program = x.pid, x.program
		}
	}

	return out
}
