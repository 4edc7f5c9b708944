// Package store defines the interface of the durable store: what is stored and how it is queried.
//
// The yard's state lives in the yardmaster's memory; the store is its durable
// record and the place where lists and history are looked up. One writer, the
// loop of the server that leads, commits batches; many readers ask. The contract
// is written as tests in storetest and holds for every implementation.
package store

import (
	"context"
	"strings"
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/dataset"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// Store keeps the yard's record.
type Store interface {
	// Lead begins a term in which the caller leads: only the leader may commit. It waits until
	// the present leader has resigned or its lease has expired, or ctx ends; a store that
	// cannot be reached is asked again. It returns how long the term lasts without a renewal,
	// and 0 if it lasts as long as the process, because no other can lead before that has ended.
	Lead(ctx context.Context, c Candidate) (lease time.Duration, err error)
	// Renew extends the term by another lease, which counts from before the call. It fails with
	// ErrNotLeader if another server leads. It does not wait for a commit that hangs.
	Renew(ctx context.Context) error
	// Resign ends the term, so that another server can lead at once.
	Resign(ctx context.Context) error
	// Leader returns who leads, or who did last.
	Leader(ctx context.Context) (Leader, error)
	// Attend records that a server is there.
	Attend(ctx context.Context, s Server) error
	// Servers lists the servers that were there within a time, by name.
	Servers(ctx context.Context, within time.Duration) ([]Server, error)

	// Load reads all that the yardmaster needs to go on. Jobs that ended
	// before recent are left out.
	Load(ctx context.Context, recent time.Time) (yardmaster.State, error)

	// Commit writes the batches in one transaction, in order, and returns when
	// they are durable. It fails with ErrNotLeader unless this server leads. It
	// fails after a time if the store does not answer; then it is not known whether
	// the batches are stored, and nothing else is written before that is found out.
	// Committing the same batches again finds it out, and writes them if they are not there.
	Commit(ctx context.Context, batches ...*yardmaster.Batch) error

	// Job returns one job, or fault.NotFound with code "job_not_found".
	Job(ctx context.Context, j id.Job) (job.Job, error)
	// JobByKey returns the job submitted by this user under this idempotency key (the first of
	// its file), or fault.NotFound.
	JobByKey(ctx context.Context, owner id.User, key string) (job.Job, error)
	// Pipeline returns all jobs that share the pipeline name, in order of submission.
	Pipeline(ctx context.Context, pipeline string) ([]job.Job, error)
	// Array returns one array, or fault.NotFound with code "array_not_found".
	Array(ctx context.Context, a id.Array) (Array, error)
	// Arrays lists arrays that the filter lets through, newest first.
	Arrays(ctx context.Context, f ArrayFilter) ([]Array, error)
	// Jobs lists jobs that the filter lets through, newest first.
	Jobs(ctx context.Context, f JobFilter) ([]job.Job, error)
	// CountJobs counts the jobs that the filter lets through by the word that people see; Limit does not count.
	CountJobs(ctx context.Context, f JobFilter) (map[job.Status]int, error)
	// Runs returns all runs of a job in order of their epoch.
	Runs(ctx context.Context, j id.Job) ([]job.Run, error)
	// Run returns one run, or fault.NotFound with code "run_not_found".
	Run(ctx context.Context, r id.Run) (job.Run, error)
	// Events lists events that the filter lets through, oldest first.
	Events(ctx context.Context, f EventFilter) ([]yardmaster.Event, error)
	// Checkpoints lists checkpoints that the filter lets through, by job and number.
	Checkpoints(ctx context.Context, f CheckpointFilter) ([]checkpoint.Checkpoint, error)
	// Checkpoint returns one checkpoint, or fault.NotFound with code "checkpoint_not_found".
	Checkpoint(ctx context.Context, c id.Checkpoint) (checkpoint.Checkpoint, error)
	// Users lists users by name; tokens by id. Both are small and paged by the last name seen.
	Users(ctx context.Context, after id.User, limit int) ([]tenant.User, error)
	Tokens(ctx context.Context, owner id.User, after id.Token, limit int) ([]tenant.Token, error)
	// Members lists the members of all projects, by project and name.
	Members(ctx context.Context) ([]tenant.Member, error)

	// Leases lists leases that the filter lets through, newest first.
	Leases(ctx context.Context, f LeaseFilter) ([]fleet.Lease, error)
	// Lease returns one lease, or fault.NotFound with code "lease_not_found".
	Lease(ctx context.Context, l id.Lease) (fleet.Lease, error)
	// Questions lists questions that the filter lets through, those about the newest jobs first.
	Questions(ctx context.Context, f QuestionFilter) ([]inbox.Question, error)
	// Question returns one question, or fault.NotFound with code "question_not_found".
	Question(ctx context.Context, q id.Question) (inbox.Question, error)
	// Postings yields the postings of the ledger that the filter lets through, by their ends, and those of an entry
	// together and in their order. It stops at the first error of yield and returns it.
	Postings(ctx context.Context, f PostingFilter, yield func(*ledger.Posting) error) error
	// RollUp adds postings that are in no total yet to the totals, at most about so many, beside the loop's commits;
	// only the leader may. It returns how many: 0 if the totals have all of them.
	RollUp(ctx context.Context, limit int) (int, error)
	// ForgetPostings deletes postings that ended before a time, which is the beginning of a day in UTC, and the totals of
	// hours before it, at most so many of each; only the leader may. It returns how many: 0 if none is left. Totals of
	// days stay, and so do postings that are in no total yet.
	ForgetPostings(ctx context.Context, before time.Time, limit int) (int, error)
	// LedgerDetail returns since when there are postings and totals of hours; the zero time if none was deleted. Before
	// it, Postings yields only totals of whole days and otherwise fails with fault.Invalid and code "ledger_detail".
	LedgerDetail(ctx context.Context) (time.Time, error)
	// ForgetSavings adds savings of before a time, which is the beginning of a day in UTC, up to totals of their days and
	// deletes them, at most so many; only the leader may. It returns how many: 0 if none is left. The newest stays.
	ForgetSavings(ctx context.Context, before time.Time, limit int) (int, error)
	// Savings yields what decisions saved, as the filter says, by time: first totals of days, as far as savings were
	// deleted, and then savings. It fails with fault.Invalid and code "ledger_detail" if totals will not do there. It
	// stops at the first error of yield and returns it.
	Savings(ctx context.Context, f SavingFilter, yield func(*ledger.Saving) error) error
	// Uses returns where a dataset was used, newest first.
	Uses(ctx context.Context, d id.Dataset, limit int) ([]dataset.Use, error)

	// Keep writes documents, whole, in one transaction beside the loop's commits; only the writer may.
	Keep(ctx context.Context, docs ...Document) error
	// Drop removes documents of a kind. One that is not there is no mistake.
	Drop(ctx context.Context, kind DocumentKind, ids ...string) error
	// Documents lists documents that the filter lets through, newest first if it does not say otherwise.
	Documents(ctx context.Context, f DocumentFilter) ([]Document, error)

	// Possess records that users have contents, beside the loop's commits; only the leader may. What is recorded
	// already gets the size that is given.
	Possess(ctx context.Context, list ...Possession) error
	// Disown removes the possessions of contents, of all users. One that nobody possesses is ignored.
	Disown(ctx context.Context, digests ...string) error
	// Possessed returns those of the digests whose contents a user possesses, in their order.
	Possessed(ctx context.Context, owner id.User, digests []string) ([]string, error)
	// PossessedBytes returns how many bytes all contents of a user have, or those of each user together if
	// it is "". For a user it reads an index only.
	PossessedBytes(ctx context.Context, owner id.User) (int64, error)
	// PossessedDigests lists the digests after one that anybody possesses, in order and each once.
	PossessedDigests(ctx context.Context, after string, limit int) ([]string, error)
	// UnreadManifests lists possessions of the size UnreadManifest.
	UnreadManifests(ctx context.Context, limit int) ([]Possession, error)
	// ForgetJobs deletes jobs that ended long ago, with their runs, questions, removed checkpoints, curves and last
	// forecasts. The newest job of all must be kept: numbers are given out after it. What the ledger and the forecasts'
	// history have of them stays.
	ForgetJobs(ctx context.Context, jobs ...id.Job) error
	// ForgetEvents deletes events by their numbers. The newest of all must be kept, for the same reason.
	ForgetEvents(ctx context.Context, seqs ...uint64) error

	// Ping answers whether the store can write and read now.
	Ping(ctx context.Context) error
	Close() error
}

// ErrNotLeader is the error of a server that does not lead, or no longer, and tries to write.
var ErrNotLeader = fault.New(fault.Unavailable, "not_leader",
	"this server does not lead the yard; another does, or will within seconds")

// Candidate is a server that wants to lead.
type Candidate struct {
	Server
	Lease time.Duration // how long a term lasts without a renewal
	// Former begins the names of earlier starts of this server that have ended for certain, so that it
	// need not wait until their lease has expired; "" if there are none.
	Former string
}

// Server is one server of the yard.
type Server struct {
	Name    string // unlike that of any other start of any server
	Address string // URL under which the other servers, agents and people reach it
}

// Leader is who leads.
type Leader struct {
	Server
	Term     int64         // greater than that of every earlier leader
	Lease    time.Duration // how long the term lasts without a renewal; 0 after a resignation
	Renewals int64         // changes with every renewal
}

// JobFilter chooses jobs. A zero field lets all through.
type JobFilter struct {
	Owner    id.User
	Projects []id.Project // with an owner: also jobs of others in these projects
	Project  id.Project
	States   []job.State
	Statuses []job.Status // also those that show one of these words, in whatever state
	Name     string       // part of the name
	Called   string       // the whole name
	Node     id.Node      // has or had a run there
	Array    id.Array     // elements of this array
	Single   bool         // jobs that are not elements of an array
	Since    time.Time    // submitted at or after
	Before   uint64       // only jobs with a number below this: the page after the last one seen
	Oldest   bool         // the oldest first, instead of the newest
	After    uint64       // only jobs with a number above this: the page after the last one seen, if the oldest come first
	Sort     JobSort      // sorted by this instead of by submission: the greatest first, or with Oldest the smallest
	Last     *JobPlace    // with Sort: only jobs that come after this place, that of the last one seen
	// Outline leaves out all but the owner, project, pipeline, working directory, state, cause and times of jobs, which is
	// much faster.
	Outline bool
	Limit   int // at most this many; required
}

// Array is what the elements of an array share, and how they are.
type Array struct {
	ID        id.Array
	Owner     id.User
	Project   id.Project
	Spec      *job.Spec // as submitted; never changed, shared
	Submitted time.Time
	Counts    map[job.Status]int // elements by the word that people see; a suspended one counts as running
	Cost      money.Amount       // of all elements, as far as it is posted
	Active    bool               // some element has not ended
	Ended     time.Time          // when the last of those that have ended did
}

// ArrayFilter chooses arrays. A zero field lets all through.
type ArrayFilter struct {
	ID       id.Array
	Owner    id.User
	Projects []id.Project // with an owner: also arrays of others in these projects
	Project  id.Project
	Name     string // part of the name
	Active   bool   // only those with elements that have not ended
	Before   uint64 // only arrays with a number below this: the page after the last one seen
	Limit    int    // at most this many; required
}

// JobSort is something by which jobs are sorted. Those of which it is the same come in the order of submission.
type JobSort string

// What jobs can be sorted by.
const (
	SortName  JobSort = "name"
	SortCost  JobSort = "cost"
	SortEnded JobSort = "ended" // jobs that have not ended count as the earliest
)

// JobPlace is where a job is in a sorted list: by its number, and by what the list is sorted by.
type JobPlace struct {
	Number uint64
	Name   string
	Cost   money.Amount
	Ended  time.Time
}

// CheckpointFilter chooses checkpoints. A zero field lets all through, except that removed ones are asked for.
type CheckpointFilter struct {
	Job     id.Job
	Removed bool          // also those that were removed
	After   id.Checkpoint // only those after this one: the page after the last one seen
	Limit   int           // at most this many; required
}

// LeaseFilter chooses leases. A zero field lets all through.
type LeaseFilter struct {
	Owner   id.User
	Project id.Project
	Job     id.Job
	Live    bool      // only those that have not ended
	From    time.Time // not ended, or ended at or after
	To      time.Time // asked for before
	Before  uint64    // only leases with a number below this
	Limit   int       // at most this many; required
}

// PostingFilter chooses postings. A zero field lets all through.
type PostingFilter struct {
	From, To time.Time // those that overlap this period; a zero end is no end
	Owners   []id.User // only those that one of them pays for
	Projects []id.Project
	Jobs     []id.Job
	// Cuts reports whether a posting will be cut in pieces. The postings of an entry are cut together, so with owners,
	// projects or jobs all of its entry are yielded.
	Cuts func(*ledger.Posting) bool
	// Totals lets totals stand for postings where there are such; then there must be no owners, projects and jobs.
	// ByHour keeps the hours of a day apart.
	Totals ledger.Totals
	ByHour bool
	Beside *TotalsBeside // nil for none
	Last   uint64        // only postings up to this number; with totals that have later ones it fails with ErrLedgerAhead
}

// TotalsBeside lets one look at the ledger answer a second question from totals of another kind. Both get what is in no
// total.
type TotalsBeside struct {
	Totals ledger.Totals
	ByHour bool
	Yield  func(*ledger.Posting) error
}

// ErrLedgerAhead is the error of reading the ledger up to a posting, if later ones are in the totals already. Who
// looks again at what is not posted yet can read up to a later one.
var ErrLedgerAhead = fault.New(fault.Conflict, "ledger_ahead", "the totals of the ledger have later postings")

// SavingFilter chooses savings. A zero field lets all through.
type SavingFilter struct {
	From, To time.Time
	Totals   bool // totals of days will do; they are of all owners and projects
	Owners   []id.User
	Projects []id.Project
	Jobs     []id.Job
}

// QuestionFilter chooses questions. A zero field lets all through.
type QuestionFilter struct {
	Owner  id.User // of the job
	Job    id.Job
	States []inbox.State
	Before id.Question // the page after the last one seen
	Limit  int         // at most this many; required
}

// EventFilter chooses events. A zero field lets all through.
type EventFilter struct {
	After  uint64 // only events with a greater number
	Before uint64 // only events with a smaller number; 0 for all
	Owner  id.User
	Job    id.Job
	Node   id.Node
	Actor  string
	Kind   string // a kind, or how it begins: "job" lets all "job.…" through, "job.progress" "job.progress_stalled" too
	Audit  bool   // only those with an address: what callers caused
	Newest bool   // if there are more than Limit, the newest of them, still oldest first
	Limit  int    // at most this many; required
}

// KindPrefix returns how the kinds begin that a filter lets through beside the one it names. A name without a dot is
// the whole first part of a kind; one with a dot may end anywhere.
func (f *EventFilter) KindPrefix() string {
	if strings.Contains(f.Kind, ".") {
		return f.Kind
	}

	return f.Kind + "."
}

// Possession says that a user has shown to have a content: they have uploaded it.
type Possession struct {
	Owner  id.User
	Digest string // SHA-256 of the content, in hex
	Size   int64  // bytes of the content, or UnreadManifest
	Since  time.Time
}

// UnreadManifest is the size of a manifest that a version without possessions has taken: the user of whose job it is
// possesses the files that it lists, too, but nobody has entered them yet.
const UnreadManifest = -1

// Document is something that is kept whole under a name. What is in it is its writer's business.
type Document struct {
	Kind DocumentKind
	ID   string // a document of a job begins with the job's id and a slash
	At   time.Time
	Text string
}

// DocumentKind is what a document is.
type DocumentKind string

// The kinds.
const (
	CurveDocument    DocumentKind = "curve"    // job/metric: what a job's program measured
	ForecastDocument DocumentKind = "forecast" // job: what was last expected of it
	PastDocument     DocumentKind = "past"     // job: what is remembered of one that ended well
	ModelDocument    DocumentKind = "model"    // version: what was learned from those
	RemovedDocument  DocumentKind = "removed"  // job: why its output is not kept, though its time was not over
	OutputsDocument  DocumentKind = "outputs"  // job/run/rank: the output files of the rank
	UseDocument      DocumentKind = "use"      // job: what its newest run used of its nodes
	SavingsDocument  DocumentKind = "savings"  // day: total savings of decisions whose rows were removed
	// NotifiedDocument says how far in the feed notifications have come; there is one. DeliveryDocument, of
	// SUBJECT/CHANNEL/EVENT, is a notification that is not delivered yet.
	NotifiedDocument DocumentKind = "notified"
	DeliveryDocument DocumentKind = "delivery"
)

// DocumentFilter chooses documents of a kind.
type DocumentFilter struct {
	Kind  DocumentKind
	ID    string // only this one
	Under string // only those whose id begins with this and a slash
	ByID  bool   // in the order of their ids instead of newest first
	After string // with ByID: only those after this id, the page after the last one seen
	Limit int    // at most this many; required
}
