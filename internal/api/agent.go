package api

import (
	"time"

	"trainyard/internal/api/wire"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Capability is the version of the agent protocol that this binary speaks.
// Both sides send it; a side that needs more than the other has says so.
//
//	1  first version
//	2  the report of a rank may carry the progress of its program
//	3  the answers to a join and to a report may say how long the machine's lease holds
//	4  a launch may name datasets, a report the copies that the node keeps, and the answer
//	   those that it may not keep
//	5  an agent may report metrics; a launch may say where they are found, and the target
//	6  an agent says in a header which process of which machine it is, and ends if it is refused as a copy
//	7  a launch, a report and an upload may carry the UID of their run, the assignments the
//	   incarnation of the yard, and a report what the node has seen of the yard's history
//	8  checkpoints travel: a launch may name the checkpoint to restore, and an agent uploads and catalogues them
//	9  an assignment may suspend a program in place and let it continue, and a report says what became of that
//	11 an assignment may carry the values of secrets
//	12 a launch may name the files that are kept when its rank has ended, and assignments may ask for files of a run
//	13 the report of a rank may carry what it uses of its node
//	14 the report of a rank may say that it has printed nothing; an upload of output may have its end with it
//	15 a report may carry what was read from the GPUs: use, power and temperature
//	16 assignments may ask for tunnels to runs, which the agent opens
//	17 the program of a rank may wait until all ranks of its run are ready, and agents probe the network between them
//	18 a launch may name a container image, an inventory says whether the node runs containers, and the report of a rank
//	   which image it got
//	19 a launch may ask for a Python environment, and an inventory says which the node can make
const Capability = 19

// JoinRequest asks to become a node. It carries the join token's text and a
// certificate request; the key never leaves the machine.
type JoinRequest struct {
	Capability int             `json:"capability"`
	Token      string          `json:"token" maxLength:"300"`
	Name       string          `json:"name" maxLength:"63" doc:"preferred node name; a number is appended if it is taken"`
	CSR        string          `json:"csr" maxLength:"16384" doc:"certificate signing request in PEM"`
	Inventory  fleet.Inventory `json:"inventory"`
}

// JoinReply makes the caller a node.
type JoinReply struct {
	Capability  int       `json:"capability"`
	Node        id.Node   `json:"node"`
	Certificate string    `json:"certificate" doc:"certificate in PEM"`
	CA          string    `json:"ca" doc:"certificate in PEM"`
	Expires     time.Time `json:"expires"`
	// LeaseLeft is that of ReportReply.
	LeaseLeft *int64 `json:"lease_left,omitempty" doc:"seconds until the lease of a provisioned node expires"`
	// Notice is for a machine that is, or was, another node, too.
	Notice string `json:"notice,omitempty" doc:"what its operator should know"`
}

// RenewRequest asks for a new certificate over a connection that the old one made.
type RenewRequest struct {
	CSR string `json:"csr" maxLength:"16384"`
	// Proof is left out by agents that keep their key: their request is signed with it.
	Proof []byte `json:"proof,omitempty" maxLength:"4096" doc:"signature of the request with the key of the present certificate, if it is for another key"`
}

// RenewReply is the new certificate.
type RenewReply struct {
	Certificate string    `json:"certificate"`
	Expires     time.Time `json:"expires"`
}

// Assignments is the complete desired state of a node, so that a
// lost message does not matter. An agent ignores a generation that is not
// greater than the last one it obeyed from the same server start.
type Assignments struct {
	Server     string       `json:"server" doc:"identifies this start of the server"`
	Generation uint64       `json:"generation"`
	Runs       []Assignment `json:"runs"`
	// Incarnation is left out by a server of an earlier version.
	Incarnation *Incarnation `json:"incarnation,omitempty"`
	// Outputs is not part of the desired state: a request is answered once, whatever the generation.
	Outputs []OutputsRequest `json:"outputs,omitempty" doc:"files that people want from runs of this node"`
	// Tunnels likewise: each is opened once. They are for an agent of capability 16 or later.
	Tunnels []TunnelRequest `json:"tunnels,omitempty" doc:"tunnels that people want to runs of this node"`
}

// Incarnation identifies one history of a yard. A new one begins when the database is
// restored from a backup, because the yard then knows nothing of what happened since.
type Incarnation struct {
	Number uint64 `json:"number" doc:"1 for the first; greater for each that follows"`
	Mark   id.UID `json:"mark" maxLength:"64" doc:"random; tells apart two incarnations with the same number"`
}

// Assignment is one rank of a run that a node must run, or stop.
// A run that the agent has and that is not assigned is stopped at once and its record dropped.
type Assignment struct {
	Run   id.Run       `json:"run"`
	Job   id.Job       `json:"job"`
	Epoch int          `json:"epoch"`
	Rank  int          `json:"rank"`
	Stop  job.StopMode `json:"stop,omitempty"`
	Dump  bool         `json:"dump,omitempty" doc:"take a snapshot when it is stopped"`
	// Save is left out by a server of an earlier version and ignored by an agent of one.
	Save int `json:"save,omitempty" doc:"counts the requests to save a checkpoint and to continue"`
	// Suspend is for an agent of capability 9 or later.
	Suspend job.SuspendOrder `json:"suspend,omitzero" doc:"suspend the program in place, or let it continue"`
	// Peers and Start are of a run on several nodes, for an agent of capability 17 or later.
	Peers  []int          `json:"peers,omitempty" doc:"ports at which the agents of all ranks answer probes, in rank order; -1 for one that does not"`
	Start  *job.GangStart `json:"start,omitempty" doc:"all ranks are ready: the program starts, with these addresses"`
	Launch Launch         `json:"launch"`
	// Adopt is set after a restore for what was assigned before it: the agent may go on with
	// it, but must not start it, because a later run of the job may exist.
	Adopt bool `json:"adopt,omitempty"`
	// Secrets are for an agent of capability 11 or later. They are beside the launch, because an agent writes the launch
	// to its disk.
	Secrets []SecretValue `json:"secrets,omitempty" doc:"values of the secrets that the launch names"`
	// RegistryAuth is for an agent of capability 18 or later. The program does not get it.
	RegistryAuth string `json:"registry_auth,omitempty" doc:"credentials for the registry of the image, as USER:PASSWORD"`
	// SecretsError is given in place of the values.
	SecretsError string `json:"secrets_error,omitempty" doc:"why the run cannot have its secrets and must not be started"`
}

// The types that the supervisor of a rank knows too are in a package of their own, which needs nothing of HTTP: see
// package wire.
type (
	// SecretValue is a secret as a program gets it.
	SecretValue = wire.SecretValue
	// Launch is all that a node needs to know to start its rank of a run.
	Launch = wire.Launch
	// RankReport is how far one rank of a run has come.
	RankReport = wire.RankReport
)

// Report is what an agent tells the server: that it lives, and what its runs do.
// Reporting again what was reported before changes nothing.
type Report struct {
	Capability int              `json:"capability"`
	Boot       string           `json:"boot" doc:"identifies this start of the agent"`
	Seq        uint64           `json:"seq" doc:"increases with each report of one boot"`
	Inventory  *fleet.Inventory `json:"inventory,omitempty" doc:"sent with the first report of a boot and after a change"`
	Ranks      []RankReport     `json:"ranks,omitempty" maxItems:"10000"`
	Foreign    []int            `json:"foreign,omitempty" doc:"indices of GPUs in use by processes outside the yard"`
	// ForeignProcesses are those processes, as far as they can be seen, so that people
	// can be told who is at work there.
	ForeignProcesses []ForeignProcess `json:"foreign_processes,omitempty" maxItems:"1000"`
	// GPUs is what was read from the GPUs at the newest look, in every report.
	GPUs []fleet.GPUReading `json:"gpus,omitempty" maxItems:"256"`
	// Data is all that the node has fetched and keeps, in every report: what is not in
	// it is not there any more.
	Data []job.DataCopy `json:"data,omitempty" maxItems:"10000"`
	// Seen tells a server whose database was restored that there was more. It is left out by a
	// node that has never had a run.
	Seen *Seen `json:"seen,omitempty"`
	// SetAside lists runs of another history of the yard that the node has set aside since
	// its last report that was answered.
	SetAside []SetAsideRun `json:"set_aside,omitempty" maxItems:"10000"`
	// Clock is in every report after an answer that had the server's time: that server knows the word.
	Clock *fleet.ClockOffset `json:"clock,omitempty" doc:"how far the clock of the node is from that of the server"`
	// ReclaimLeft is in every report after the cloud has given notice that it takes the machine back.
	ReclaimLeft *int64 `json:"reclaim_left,omitempty" doc:"seconds until the cloud takes this spot instance back" minimum:"0"`
}

// Seen is what a node has seen of the yard's history.
type Seen struct {
	Incarnation Incarnation `json:"incarnation" doc:"incarnation of the newest assignment that the node has started"`
	Job         uint64      `json:"job" doc:"greatest number of a job that has been assigned to the node"`
}

// SetAsideRun is a rank of a run that a node has stopped and set aside, because the yard does
// not know the run or has given its id to another one.
type SetAsideRun struct {
	Run  id.Run `json:"run" maxLength:"100"`
	UID  id.UID `json:"uid,omitempty" maxLength:"64"`
	Rank int    `json:"rank"`
	Path string `json:"path" maxLength:"4096" doc:"directory on the node"`
}

// ForeignProcess is a process outside the yard that uses a GPU.
type ForeignProcess struct {
	GPU     int       `json:"gpu"`
	PID     int       `json:"pid"`
	User    string    `json:"user,omitempty" maxLength:"200" doc:"operating-system user on that machine; absent if unknown"`
	Program string    `json:"program,omitempty" maxLength:"200"`
	Memory  job.Bytes `json:"memory,omitempty" doc:"GPU memory used"`
}

// GPURelease is an operator's word that a GPU may be used again.
type GPURelease struct {
	UUID string    `json:"uuid"`
	At   time.Time `json:"at" doc:"identifies the release; an agent acts on each release once"`
}

// ReportReply tells the agent how long the server will wait for it.
type ReportReply struct {
	// Interval is how often the server wants to hear from the agent.
	Interval job.Duration `json:"interval"`
	// Lease is how long the node's runs may continue without another answer, counted from before
	// this report was sent. An agent without one for that long stops its runs, because they may be
	// started elsewhere then. Package contact has the rules.
	Lease job.Duration `json:"lease"`
	// Grace is the longest time between SIGTERM and SIGKILL when the lease has expired; a tenth of
	// the lease if left out.
	Grace job.Duration `json:"grace,omitempty" doc:"longest grace period of runs when the contact lease has expired"`
	// Generation is that of the newest assignments. An agent starts nothing of older ones, and
	// notices a stream that hangs.
	Generation uint64 `json:"generation"`
	// Server identifies the start of the server to which the generation belongs.
	Server string `json:"server,omitempty" doc:"identifies the start of the server, as in the assignments"`
	// Release lists the newest release of each GPU that an operator let out of quarantine.
	Release []GPURelease `json:"release,omitempty"`
	// Purge lists data that the node keeps and may not, by the rules of the data; it goes
	// as soon as no run uses it. An agent that still has it is told again.
	Purge []job.DataCopy `json:"purge,omitempty"`
	// LeaseLeft is for how many seconds more the yard holds this machine, left out for
	// one that was not provisioned. A machine that hears nothing newer for that long ends
	// itself: nobody may be left who would. Seconds, not a time, because
	// the clocks of provisioned machines cannot be trusted.
	LeaseLeft *int64 `json:"lease_left,omitempty" doc:"seconds until the lease of a provisioned node expires"`
	// Servers lists the addresses of all servers of the yard, that of the leader first.
	Servers []string `json:"servers,omitempty" doc:"addresses of all servers, the leader first"`
	// Time is the server's clock at some moment between the report and this answer. A server of an earlier version leaves
	// it out.
	Time time.Time `json:"time,omitzero" doc:"the server's clock"`
	// Standby says that another server may lead the yard, or take the lead at any time. Then a server that
	// refuses the connection proves nothing about what the yard has decided.
	Standby bool `json:"standby,omitempty" doc:"whether another server may take the lead"`
	// Shared lists the shared file systems of the node, in every answer. An agent of an earlier version does not look
	// for them and stores checkpoints as on any other node.
	Shared []SharedFolder `json:"shared,omitempty" doc:"shared file systems of the node"`
	// Silent says that the server takes the end of a rank that has printed nothing from its report alone. Without it an
	// agent uploads an empty log.
	Silent bool `json:"silent,omitempty" doc:"whether reports may call ranks silent"`
}

// SharedFolder is a file system that several nodes have in common. Whether a folder is that file system says the file
// with the nonce in it.
type SharedFolder struct {
	Name  string `json:"name"`
	Path  string `json:"path" doc:"where the node has it"`
	Nonce string `json:"nonce"`
	// Create is said to one node, as long as no node has ever found the nonce.
	Create bool `json:"create,omitempty" doc:"the node writes the nonce if it is not there"`
	Keeper bool `json:"keeper,omitempty" doc:"the node removes what is not needed any more"`
	Known  bool `json:"known,omitempty" doc:"a node has found the nonce: it is time to look again"`
}

// SharedDir is a directory on a shared file system that a run has left there.
type SharedDir struct {
	Run  id.Run `json:"run" maxLength:"100"`
	UID  id.UID `json:"uid" maxLength:"64"`
	Path string `json:"path" maxLength:"4096" doc:"below the root of the file system"`
	Kept bool   `json:"kept,omitempty" doc:"it is a checkpoint, not the directory that the program wrote to"`
}

// SharedDirs asks which of the directories on a shared file system are not needed any more.
type SharedDirs struct {
	Shared string      `json:"shared" maxLength:"63"`
	Dirs   []SharedDir `json:"dirs" maxItems:"10000"`
}

// SharedDirsReply lists the directories that are not needed.
type SharedDirsReply struct {
	Remove []string `json:"remove" doc:"paths"`
}

// CodeHeard is the code of the error with which a server answers a report while its store does not
// answer: it counts the report as a sign of life, and the contact lease is extended as by any
// answer to a report, but nothing that is in the report was taken.
const CodeHeard = "heard"

// Codes of errors upon which a provisioned machine ends itself, when it joins or reports.
const (
	CodeLeaseOver   = "lease_over"   // the yard does not hold the machine any more
	CodeNodeRemoved = "node_removed" // the node was taken out of the yard; one that is not provisioned stays as it is
)

// Codes of errors that refuse an agent because another speaks for the node.
const (
	CodeAgentWaits       = "agent_waits"        // an earlier boot was heard a moment ago: report again
	CodeAgentReplaced    = "agent_replaced"     // a later start has taken over: end
	CodeAgentCopied      = "agent_copied"       // a copy of the node's data directory: end
	CodeAgentNotAdmitted = "agent_not_admitted" // it must be admitted by a report before it does anything else
)

// CodeOtherRun is the code of the error that the yard knows another run under the id of the one
// whose output or metrics an agent sends.
const CodeOtherRun = "other_run"

// LogReply answers an upload of output: how many bytes the server holds now.
// An upload at another offset than that is not taken; the agent goes on from here.
type LogReply struct {
	Offset int64 `json:"offset"`
	// Ended says that the server has taken the end of the output too. A server of an earlier version does not say it, and
	// is sent the end once more, alone.
	Ended bool `json:"ended,omitempty"`
}
