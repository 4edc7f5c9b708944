// Package id holds the typed names of things.
//
// Ids are short, because people type them: job j1041, its second run j1041.2.
// They come from counters in the yard's state, never from chance, so that the
// same messages give the same ids. A UID tells apart what two histories of a yard
// gave the same id: a database that is restored from a backup counts again.
package id

import (
	"strconv"
	"strings"
)

// The names of things. A Job, Run or Lease is made by this package; a Node, User,
// Project or Dataset is a name that people chose and that Name accepted.
type (
	Job     string
	Run     string
	Node    string
	User    string
	Project string
	Token   string
	Lease   string
	Dataset string
	// Array is the id of the jobs that one job file with the field array made: a12, where j12 is the first of them.
	Array string
	// Schedule is the id of what submits jobs again and again: s12.
	Schedule string
	// Reservation is the id of nodes that are set aside for a user: r3.
	Reservation string
	// Checkpoint is the id of a job's n-th checkpoint: j1041.c3.
	Checkpoint string
	// Question is the id of the n-th question about a job: j1041.q2.
	Question string
	UID      string // 128 random bits in hexadecimal; "" for what was made by an earlier version
)

// NewJob returns the id of the n-th job.
func NewJob(n uint64) Job { return Job("j" + strconv.FormatUint(n, 10)) }

// Number returns n of NewJob(n), and false for a string that is not a job id.
func (j Job) Number() (uint64, bool) {
	return number(string(j), "j")
}

func number(s, letter string) (uint64, bool) {
	digits, ok := strings.CutPrefix(s, letter)
	if !ok || digits == "" || digits[0] == '0' {
		return 0, false
	}

	for _, c := range []byte(digits) { // an error would cost more than the answer
		if c < '0' || c > '9' {
			return 0, false
		}
	}

	n, err := strconv.ParseUint(digits, 10, 64)

	return n, err == nil
}

// NewArray returns the id of the array whose first element is the n-th job.
func NewArray(n uint64) Array { return Array("a" + strconv.FormatUint(n, 10)) }

// Number returns n of NewArray(n), and false for a string that is not the id of an array.
func (a Array) Number() (uint64, bool) { return number(string(a), "a") }

// NewLease returns the id of the n-th lease.
func NewLease(n uint64) Lease { return Lease("l" + strconv.FormatUint(n, 10)) }

// Number returns n of NewLease(n), and false for a string that is not a lease id.
func (l Lease) Number() (uint64, bool) { return number(string(l), "l") }

// NewSchedule returns the id of the n-th schedule.
func NewSchedule(n uint64) Schedule { return Schedule("s" + strconv.FormatUint(n, 10)) }

// Number returns n of NewSchedule(n), and false for a string that is not the id of a schedule.
func (s Schedule) Number() (uint64, bool) { return number(string(s), "s") }

// NewReservation returns the id of the n-th reservation.
func NewReservation(n uint64) Reservation { return Reservation("r" + strconv.FormatUint(n, 10)) }

// Number returns n of NewReservation(n), and false for a string that is not the id of a reservation.
func (r Reservation) Number() (uint64, bool) { return number(string(r), "r") }

// NewRun returns the id of the run of a job with this epoch.
func NewRun(j Job, epoch int) Run { return Run(string(j) + "." + strconv.Itoa(epoch)) }

// Split returns the job and the epoch of a run, and false for a string that is not a run id.
func (r Run) Split() (Job, int, bool) {
	left, right, ok := strings.Cut(string(r), ".")
	if !ok {
		return "", 0, false
	}

	epoch, err := strconv.Atoi(right)
	if _, isJob := Job(left).Number(); !isJob || err != nil || epoch < 1 || strconv.Itoa(epoch) != right {
		return "", 0, false
	}

	return Job(left), epoch, true
}

// NewCheckpoint returns the id of the n-th checkpoint of a job.
func NewCheckpoint(j Job, n int) Checkpoint { return Checkpoint(string(j) + ".c" + strconv.Itoa(n)) }

// Split returns the job and the number of a checkpoint, and false for a string that is not the id of one.
func (c Checkpoint) Split() (Job, int, bool) {
	left, right, ok := strings.Cut(string(c), ".")
	if !ok {
		return "", 0, false
	}

	n, isNumber := number(right, "c")
	if _, isJob := Job(left).Number(); !isJob || !isNumber || n > 1<<31 {
		return "", 0, false
	}

	return Job(left), int(n), true
}

// NewQuestion returns the id of the n-th question about a job.
func NewQuestion(j Job, n int) Question { return Question(string(j) + ".q" + strconv.Itoa(n)) }

// Split returns the job and the number of a question, and false for a string that is not the id of one.
func (q Question) Split() (Job, int, bool) {
	left, right, ok := strings.Cut(string(q), ".")
	if !ok {
		return "", 0, false
	}

	n, isNumber := number(right, "q")
	if _, isJob := Job(left).Number(); !isJob || !isNumber || n > 1<<31 {
		return "", 0, false
	}

	return Job(left), int(n), true
}

// MaxName is the greatest length of a name that people choose.
const MaxName = 63

// Name reports whether s may name a node, user, project or job: lower-case
// letters, digits, '-', '_' and '.', a letter or digit at both ends.
func Name(s string) bool {
	if s == "" || len(s) > MaxName {
		return false
	}

	for i, c := range []byte(s) {
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		edge := i == 0 || i == len(s)-1
		if !alnum && (edge || c != '-' && c != '_' && c != '.') {
			return false
		}
	}

	return true
}
