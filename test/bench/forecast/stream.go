package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// The stream of ordinary jobs: lengths, GPUs and times of submission are those of jobs of a large cluster, Philly,
// which come without names. Who submitted them, under which name and with which command is made up here: people
// run a few programs each, mostly again as before, sometimes with a change, and now and then something new.
const (
	streamUsers    = 200
	streamPrograms = 5    // of a user, on average
	programSpread  = 0.7  // mean absolute deviation of the logarithm of durations of a program
	sameLength     = 0.2  // difference of logarithms up to which a job may be the repetition of another
	repeatShare    = 0.8  // of the jobs that may be one are
	strayShare     = 0.1  // of the jobs repeat a command though they take another time: they stopped early, or hung
	oneOffShare    = 0.05 // of the jobs are run once
)

// ordinaryJob is a job of the stream.
type ordinaryJob struct {
	job       job.Job
	submitted time.Time
	seconds   float64
}

// clusterJob is a job of the trace.
type clusterJob struct {
	submitted time.Time
	seconds   float64
	gpus      int
	cluster   string
}

// readCluster reads the jobs of the trace, in the order of their submission.
func readCluster(dir string) ([]clusterJob, error) {
	var list []clusterJob

	columns := []string{"timestamp", "duration", "num_gpus", "cluster"}
	err := table(filepath.Join(dir, "philly", "philly_jobs.csv.gz"), columns, func(cells []string) error {
		at, err := time.Parse(time.DateTime, cells[0])
		if err != nil {
			return err
		}

		seconds, err := number(cells[1])
		if err != nil {
			return err
		}

		gpus, err := number(cells[2])
		if err != nil {
			return err
		}

		if seconds > 0 {
			list = append(list, clusterJob{at, seconds, int(gpus), cells[3]})
		}

		return nil
	})

	slices.SortStableFunc(list, func(a, b clusterJob) int { return a.submitted.Compare(b.submitted) })

	return list, err
}

// program is what a user runs again and again.
type program struct {
	user, name, script string
	log                float64 // of the seconds that it takes usually
	gpus               int
	variants           []variant
}

// variant is a program with certain arguments.
type variant struct {
	command string
	log     float64 // of the seconds that it took last
}

// ordinaryJobs makes up who ran the jobs of a trace.
func ordinaryJobs(trace []clusterJob, seed uint64) []ordinaryJob {
	rng := rand.New(rand.NewPCG(seed, 16))
	programs := makeUp(trace, rng)

	list := make([]ordinaryJob, 0, len(trace))
	for i, c := range trace {
		p := choose(programs[c.cluster], c, rng)
		list = append(list, ordinaryJob{
			submitted: c.submitted,
			seconds:   c.seconds,
			job: job.Job{
				ID: id.NewJob(uint64(i + 1)), Owner: id.User(p.user), Submitted: c.submitted, State: job.Pending,
				Spec: &job.Spec{
					Name: p.name,
					Run:  p.command(math.Log(c.seconds), rng),
					Resources: job.Resources{
						GPUs: job.Range{Min: c.gpus, Max: c.gpus}, Nodes: job.Range{Min: 1, Max: 1},
					},
				},
			},
		})
	}

	return list
}

// makeUp gives every part of the cluster its share of the users, and each of them programs that take as long as
// some job of that part did.
func makeUp(trace []clusterJob, rng *rand.Rand) map[string][]*program {
	parts := map[string][]clusterJob{}

	var names []string
	for _, c := range trace {
		if parts[c.cluster] == nil {
			names = append(names, c.cluster)
		}

		parts[c.cluster] = append(parts[c.cluster], c)
	}

	slices.Sort(names)

	kinds := []string{"train", "eval", "prep", "pretrain", "finetune", "sweep", "export", "test"}
	programs := map[string][]*program{}
	users := 0

	for _, name := range names {
		share := max(1, int(math.Round(float64(streamUsers*len(parts[name]))/float64(len(trace)))))
		for range share {
			users++
			for k := range 1 + rng.IntN(2*streamPrograms-1) {
				like := parts[name][rng.IntN(len(parts[name]))]
				kind := kinds[rng.IntN(len(kinds))]
				programs[name] = append(programs[name], &program{
					user: fmt.Sprintf("user%d", users), name: fmt.Sprintf("%s-%c", kind, 'a'+rune(k)), script: kind + ".py",
					log: math.Log(like.seconds), gpus: like.gpus,
				})
			}
		}
	}

	return programs
}

// choose returns the program that a job of the trace was a run of: probably one that takes about as long on as
// many GPUs.
func choose(programs []*program, c clusterJob, rng *rand.Rand) *program {
	if rng.Float64() < oneOffShare {
		like := programs[rng.IntN(len(programs))]
		return &program{user: like.user, name: fmt.Sprintf("try%x", rng.Uint32()), script: "try.py"}
	}

	weights := make([]float64, len(programs))
	total := 0.0

	for i, p := range programs {
		weights[i] = math.Exp(-math.Abs(math.Log(c.seconds)-p.log) / programSpread)
		if p.gpus != c.gpus {
			weights[i] *= 0.1
		}

		total += weights[i]
	}

	at := rng.Float64() * total
	for i, w := range weights {
		at -= w
		if at <= 0 {
			return programs[i]
		}
	}

	return programs[len(programs)-1]
}

// command returns the command of a run that takes so long: one that the program was run with before, or a new one.
func (p *program) command(log float64, rng *rand.Rand) string {
	if len(p.variants) > 0 && rng.Float64() < strayShare {
		return p.variants[rng.IntN(len(p.variants))].command
	}

	if len(p.variants) > 0 && rng.Float64() < repeatShare {
		nearest := slices.MinFunc(p.variants, func(a, b variant) int {
			return cmp.Compare(math.Abs(a.log-log), math.Abs(b.log-log))
		})

		if math.Abs(nearest.log-log) <= sameLength {
			return nearest.command
		}
	}

	command := fmt.Sprintf("python %s --lr %.2g --width %d", p.script, math.Exp(-7*rng.Float64()), 64<<rng.IntN(4))
	p.variants = append(p.variants, variant{command, log})

	return command
}
