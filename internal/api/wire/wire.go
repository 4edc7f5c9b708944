// Package wire holds what server, agent and supervisor say to each other about a rank of a run: what it is to run, with
// which secrets, and what became of it.
//
// They are types of package api, under whose names everybody but the supervisor knows them. They are apart, because a
// supervisor is started for every rank and must not initialise an HTTP client for that. Nothing here does anything.
package wire

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// SecretValue is a secret as a program gets it.
type SecretValue struct {
	Name  string `json:"name" doc:"of the environment variable"`
	Value string `json:"value"`
	File  bool   `json:"file,omitempty" doc:"the variable has the path of a file with the value"`
}

// Launch is all that a node needs to know to start its rank of a run.
type Launch struct {
	UID    id.UID  `json:"uid,omitempty" doc:"identifies the run, also after a restore of the yard"`
	JobUID id.UID  `json:"job_uid,omitempty" doc:"identifies the job, also after a restore of the yard"`
	Name   string  `json:"name,omitempty"`
	Owner  id.User `json:"owner"`
	// OwnerNumber is left out by a server of an earlier version.
	OwnerNumber int    `json:"owner_number,omitempty" doc:"number of the owner, never that of another user of the yard"`
	Workdir     string `json:"workdir,omitempty" doc:"digest of the manifest of the working directory"`
	// Image is for an agent of capability 18 or later.
	Image string `json:"image,omitempty" doc:"container image that the program runs in"`
	// Python is for an agent of capability 19 or later.
	Python     *job.Python       `json:"python,omitempty" doc:"environment that set-up and program run in"`
	Setup      string            `json:"setup,omitempty"`
	Command    string            `json:"command"`
	Env        map[string]string `json:"env,omitempty"`
	Secrets    []string          `json:"secrets,omitempty" doc:"secrets that the job asks for; their values are beside the launch"`
	GPUs       []int             `json:"gpus,omitempty"`
	Share      float64           `json:"share,omitempty" doc:"share of its GPU, if it shares one with other runs"`
	ShareCap   job.Bytes         `json:"share_cap,omitempty" doc:"memory of the shared GPU that it may have; left out for as much as the share"`
	ShareClass job.ShareClass    `json:"share_class,omitempty"`
	ShareLimit float64           `json:"share_limit,omitempty" doc:"the most of the GPU that it gets even if nobody else wants it; left out for all of it"`
	ShareMPS   bool              `json:"share_mps,omitempty" doc:"it shares the GPU through NVIDIA MPS"`
	CPUs       job.CPUs          `json:"cpus"`
	Memory     job.Bytes         `json:"memory,omitempty"`
	Checkpoint string            `json:"checkpoint,omitempty" doc:"checkpoint directory, relative to the working directory"`
	SaveEvery  job.Duration      `json:"save_every,omitempty" doc:"how often the program saves; absent if it decides itself"`
	Snapshot   bool              `json:"snapshot,omitempty" doc:"the program is started so that snapshots can be taken"`
	Input      bool              `json:"input,omitempty" doc:"the program gets an input that people in the run can write to"`
	Grace      job.Duration      `json:"grace"`
	LogLimit   int64             `json:"log_limit" doc:"maximum bytes of output kept"`
	Nodes      []string          `json:"nodes" doc:"addresses of the run's nodes in rank order"`
	MasterPort int               `json:"master_port"`
	// Barrier, Addresses and Slots are of a run on several nodes, for an agent of capability 17 or later.
	Barrier   bool             `json:"barrier,omitempty" doc:"the program starts when the assignment says that all ranks are ready"`
	Addresses [][]string       `json:"addresses,omitempty" doc:"all addresses of each of the run's nodes in rank order, the preferred ones first"`
	Slots     []int            `json:"slots,omitempty" doc:"number of GPUs of each rank"`
	Data      []job.DataRef    `json:"data,omitempty" doc:"datasets that must be on the node before the run starts"`
	Metrics   []job.MetricRule `json:"metrics,omitempty" doc:"metric sources in addition to those detected automatically"`
	Target    *job.Target      `json:"target,omitempty" doc:"target of the job"`
	Restore   *job.Restore     `json:"restore,omitempty" doc:"checkpoint from which the run continues; absent if it begins anew"`
	// Outputs is for an agent of capability 12 or later.
	Outputs []string `json:"outputs,omitempty" doc:"patterns of the files of the working directory that are kept when the rank has ended"`
	Shared  string   `json:"shared,omitempty" doc:"name of the shared file system on which the checkpoint directory is"`

	// RegistryAuth is for an agent of capability 18 or later.
	RegistryAuth string `json:"registry_auth,omitempty" doc:"secret with the credentials for the registry of the image; its value is beside the launch"`
}

// RankReport is how far one rank of a run has come.
type RankReport struct {
	Run       id.Run       `json:"run"`
	UID       id.UID       `json:"uid,omitempty" maxLength:"64"`
	Rank      int          `json:"rank"`
	State     job.RunState `json:"state"`
	Started   time.Time    `json:"started,omitzero"`
	Ended     time.Time    `json:"ended,omitzero"`
	ExitCode  int          `json:"exit_code,omitempty"`
	Signal    string       `json:"signal,omitempty"`
	Cause     job.Cause    `json:"cause,omitempty"`
	Reason    string       `json:"reason,omitempty" maxLength:"2000"`
	Signalled bool         `json:"signalled,omitempty"`
	Needed    job.Bytes    `json:"needed,omitempty" doc:"memory that the program had and asked for when it ran out of it"`
	// Progress is what the program tells of itself, left out where it has told
	// nothing new; of the first rank alone.
	Progress *job.Progress `json:"progress,omitempty"`
	// NewestEpoch is the greatest epoch of the job that the node has had, when it refuses a run
	// because of it.
	NewestEpoch int `json:"newest_epoch,omitempty"`
	// Restore is given with the cause restore_failed.
	Restore *job.RestoreFailure `json:"restore,omitempty" doc:"checkpoint that could not be restored"`
	// Suspension is what became of the orders to suspend the rank.
	Suspension job.Suspension `json:"suspension,omitzero"`
	// PassedEnv is left out by earlier agents.
	PassedEnv string `json:"passed_env,omitempty" maxLength:"4000" doc:"names of the machine's variables that the program got, separated by spaces"`
	// Digest is left out by earlier agents.
	Digest string `json:"digest,omitempty" maxLength:"600" doc:"container image that the rank got, with its digest"`
	// Use is left out by an agent of an earlier version.
	Use *job.Use `json:"use,omitempty" doc:"what the rank uses of its node and has used so far"`
	// Silent is left out by an agent of an earlier version, which uploads an empty log instead.
	Silent bool `json:"silent,omitempty" doc:"the rank has ended and has printed nothing, so no output of it will follow"`
	// Idle is left out by an agent of an earlier version, and by one that cannot measure what the rank uses.
	Idle *int64 `json:"idle,omitempty" minimum:"0" doc:"seconds since the rank was last active: something went through a tunnel to it, or it used CPUs or GPUs"`
	// Ready, Probe and Error are of a rank of a run on several nodes.
	Ready bool       `json:"ready,omitempty" doc:"prepared: the program starts when all ranks of the run are"`
	Probe *job.Probe `json:"probe,omitempty" doc:"what the agent found out about the network between the run's nodes"`
	Error string     `json:"error,omitempty" maxLength:"1000" doc:"last line of the first traceback in the output"`
}
