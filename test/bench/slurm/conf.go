package slurm

import (
	"fmt"
	"strings"
)

// conf is what changes from one cluster to the next.
type conf struct {
	dir      string
	host     string
	ctldPort int
	nodePort int
}

// text returns slurm.conf, tuned for many submissions and quick starts, so that
// the opponent is a fair one:
//
//   - batch_sched_delay=0 and sched_min_interval=0: the main scheduler runs at
//     its next tick after a submission, not up to three seconds later. What
//     remains looks like a tick of one second (starts spread evenly over it), and
//     we found no setting for that.
//   - max_rpc_cnt=150: the scheduler makes way for submissions while many of them wait.
//   - sched/builtin and priority/basic: no backfill and no recomputing of
//     priorities beside the submissions.
//   - MaxJobCount=200000: no submission is refused, however many are held.
//   - MinJobAge=10: finished jobs leave the controller's memory soon.
//   - MessageTimeout=60: a client waits, and does not fail, while 64 others are served.
//   - no accounting and no completion records: nothing is written to a database. This
//     favours Slurm; most sites run with accounting.
//   - proctrack/pgid, task/none, no cgroup, no prolog, no epilog, no job
//     accounting on the node: starting a job is fork and exec and little else.
//   - debug levels "error": no log line per job.
//
// Slurm answers a submission when the job's script is on the disk and the job in memory,
// and writes its job table some seconds later and without the client waiting. That
// favours it too: when slurmctld was killed with SIGKILL right after it had
// acknowledged 20 jobs, one was in the queue after its restart.
//
// One node claims 64 CPUs (config_overrides), so that a job never waits for
// another one to end. Everything listens on the loopback address only.
func (c conf) text() string {
	lines := []string{
		"ClusterName=bench",
		"SlurmctldHost=" + c.host + "(127.0.0.1)",
		"SlurmUser=root",
		fmt.Sprintf("SlurmctldPort=%d", c.ctldPort),
		"CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
		"SlurmctldPidFile=" + c.dir + "/slurmctld.pid",
		"SlurmdPidFile=" + c.dir + "/slurmd.pid",
		"StateSaveLocation=" + c.dir + "/state",
		"SlurmdSpoolDir=" + c.dir + "/spool",
		"AuthType=auth/munge",
		"AuthInfo=socket=" + c.dir + "/munge.socket",
		"CredType=cred/munge",
		"AuthAltTypes=auth/jwt",
		"AuthAltParameters=jwt_key=" + c.dir + "/jwt.key",
		"SlurmdParameters=config_overrides",
		"ReturnToService=2",
		"MailProg=/bin/true",
		"MpiDefault=none",

		"SelectType=select/cons_tres",
		"SelectTypeParameters=CR_CPU",
		"SchedulerType=sched/builtin",
		"SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,max_rpc_cnt=150",
		"PriorityType=priority/basic",
		"MaxJobCount=200000",
		"MinJobAge=10",
		"MessageTimeout=60",
		"AccountingStorageType=accounting_storage/none",
		"JobCompType=jobcomp/none",
		"JobAcctGatherType=jobacct_gather/none",
		"ProctrackType=proctrack/pgid",
		"TaskPlugin=task/none",
		"SlurmctldDebug=error",
		"SlurmdDebug=error",

		fmt.Sprintf("NodeName=n1 NodeAddr=127.0.0.1 NodeHostname=%s Port=%d CPUs=64 State=UNKNOWN", c.host, c.nodePort),
		"PartitionName=main Nodes=n1 Default=YES MaxTime=INFINITE State=UP",
	}

	return strings.Join(lines, "\n") + "\n"
}
