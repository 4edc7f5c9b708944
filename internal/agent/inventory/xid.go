package inventory

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// xid is an error reported by the NVIDIA driver: a number that says what happened, with the GPU,
// the process and the time.
type xid struct {
	at      time.Time
	bus     string // of the GPU, as busName writes it
	uuid    string // of the GPU, if the bus is unknown
	code    int
	pid     int    // of the process that caused or suffered it, 0 if unknown
	program string // its name
	// settled says that the message reports the end of a fault, not a new one.
	settled bool
}

// blameless lists the Xids that a program causes by its own mistake. They leave the GPU intact.
var blameless = []int{13, 31, 43, 45, 68, 109}

// fatal reports whether the GPU must not be used after this error.
func (x *xid) fatal() bool { return !x.settled && !slices.Contains(blameless, x.code) }

// meanings explains the Xids in a few words.
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

// evidence describes the error for people: what happened, to which program, and when.
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

// moment formats a time in UTC, because readers may be in another time zone.
func moment(t time.Time) string { return t.UTC().Format("Jan 2 15:04 UTC") }

// xidLine matches an Xid in the kernel log. Old drivers name no process; on a partitioned GPU the
// partition follows the address.
var xidLine = regexp.MustCompile(`^NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): ([0-9]{1,5}),?(.*)$`)

var (
	xidPID  = regexp.MustCompile(`\bpid='?([0-9]{1,10})\b`)
	xidName = regexp.MustCompile(`\bname=([^,]{1,64})`)
)

// parseXid parses a line of the kernel log.
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

// sameXid is the largest time between two reports of the same Xid that count as one. The event of
// the driver and the line in the kernel log differ by moments.
const sameXid = time.Minute

// mergeXids sorts the errors of several sources by time and drops duplicates. Of two reports of one
// error it keeps the one that names the process.
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
