package simcli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/cli"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/sim/yardview"
	"trainyard/internal/yardmaster"
)

// replay is a call of the command replay.
type replay struct {
	*console.Console
	registry place.Registry
	run      int
	policy   string
}

// replayCommand is `trainyard replay`.
func replayCommand(env cli.Env, registry place.Registry) *cobra.Command {
	r := &replay{Console: console.New(env), registry: registry}
	cmd := &cobra.Command{
		Use:     "replay JOB",
		Short:   "Repeat a past decision and explain it",
		GroupID: cli.GroupYard,
		Args:    exit.Args(1, 1, "job"),
		Long: `Rebuild the yard as it was when a run of a job was placed, run the policy again, and explain its
decision: where the job was placed and why, which other nodes had room, and what the other queued jobs
waited for. Lists what could not be rebuilt exactly.`,
		Example: "  trainyard replay j1041\n  trainyard replay j1041 --run 2 --policy srtf",
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.again(cmd, id.Job(args[0]))
		},
	}

	cmd.Flags().IntVar(&r.run, "run", 0, "number of the run (default: the latest)")
	cmd.Flags().
		StringVar(&r.policy, "policy", "", "use this policy instead of the yard's own; parameters follow after a colon")
	r.OutputFlag(cmd)

	return cmd
}

// Decision is a decision of the past, made again.
type Decision struct {
	Job    id.Job    `json:"job"`
	Run    id.Run    `json:"run"`
	At     time.Time `json:"at"`
	Policy string    `json:"policy"` // that was asked again
	Then   Placement `json:"then"`
	// Now is what is decided on the rebuilt yard, nil if the job would not start.
	Now     *Placement `json:"now,omitempty"`
	Verdict string     `json:"verdict"` // same, elsewhere or waits
	Why     string     `json:"why,omitempty"`
	Line    int        `json:"line"` // jobs that waited
	Place   int        `json:"place,omitempty"`
	// Rooms are other nodes that had room for it.
	Rooms  []id.Node `json:"also_had_room,omitempty"`
	Others []Other   `json:"others,omitempty"`
	Stops  []Other   `json:"stops,omitempty"` // jobs that the policy would take off their nodes
	Gaps   []string  `json:"gaps,omitempty"`
}

// Placement is where a job went, and why.
type Placement struct {
	Nodes  []string `json:"nodes"`
	Reason string   `json:"reason"`
}

// Other is another job of that time and what became of it.
type Other struct {
	Job    id.Job `json:"job"`
	Name   string `json:"name,omitempty"`
	Starts bool   `json:"starts,omitempty"`
	Why    string `json:"why"`
}

// The verdicts.
const (
	verdictSame  = "same"
	verdictOther = "elsewhere"
	verdictWaits = "waits"
)

// again makes the decision again and shows it.
func (r *replay) again(cmd *cobra.Command, j id.Job) error {
	if _, ok := j.Number(); !ok {
		return exit.Usagef(cmd, "invalid job ID %q: job IDs look like j1041", string(j))
	}

	client, err := dial(cmd, r.Console)
	if err != nil {
		return err
	}

	defer client.Close()

	line := r.NewProgress()
	past, err := yardview.Before(cmd.Context(), client, j, r.run, yardview.Options{Progress: func(done, total int) {
		line.Set("reading jobs: %d of %d", done, total)
	}})
	line.Done()

	if err != nil {
		return err
	}

	name := r.policy
	if name == "" {
		name = past.Policy
	}

	newPolicy, err := r.registry.Make(name)
	if err != nil {
		return err
	}

	d, err := decide(past, newPolicy())
	if err != nil {
		return err
	}

	d.Policy = name

	return r.Show(d, func() []string { return nil }, func() error { return r.tell(past, d) })
}

// decide asks the policy about the rebuilt yard.
func decide(past *yardview.Past, p place.Policy) (*Decision, error) {
	yard := yardmaster.New(yardmaster.Defaults(p))
	yard.Load(past.Now, past.State)

	d := &Decision{
		Job: past.Job, Run: past.Run.ID, At: past.Now, Gaps: past.Gaps,
		Then: Placement{Nodes: seatsThen(past), Reason: past.Reason},
	}

	view := yard.View(past.Now)
	d.Line = view.Queue.Len()

	why, waits := yard.Why(past.Now, past.Job)
	if !waits {
		return nil, fault.New(fault.Conflict, "not_rebuilt", "the yard could not be rebuilt: %s is not queued in it just "+
			"before its run was ordered", past.Job).
			WithRemedy("its run may be due to an earlier decision; see trainyard events --job %s", past.Job)
	}

	d.Place = why.Position
	plan := p.Plan(view)
	good, _ := place.Check(view, plan)
	for _, s := range good.Stops {
		d.Stops = append(d.Stops, Other{Job: s.Running.Job, Name: nameIn(past, s.Running.Job), Why: s.Reason})
	}

	d.Verdict = verdictWaits

	started := map[id.Job]string{}
	for _, s := range good.Starts {
		started[s.Item.Job] = s.Reason

		if s.Item.Job == past.Job {
			d.Now = &Placement{Nodes: seatsNow(&s), Reason: s.Reason}
			d.Rooms = rooms(view, &s)
		}
	}

	if d.Now != nil {
		d.Verdict = verdictOther
		if strings.Join(d.Now.Nodes, ",") == strings.Join(d.Then.Nodes, ",") {
			d.Verdict = verdictSame
		}
	}

	items := view.Queue.Items()

	if _, err := yard.Step(past.Now, yardmaster.PlanReady{Plan: plan}); err != nil {
		return nil, fmt.Errorf("apply the plan: %w", err)
	}

	if d.Now == nil {
		if why, waits := yard.Why(past.Now, past.Job); waits {
			d.Why = why.Sentence
		}
	}

	for _, it := range items {
		if it.Job == past.Job {
			continue
		}

		o := Other{Job: it.Job, Name: nameIn(past, it.Job)}
		if reason, starts := started[it.Job]; starts {
			o.Starts, o.Why = true, reason
		} else if why, waits := yard.Why(past.Now, it.Job); waits {
			o.Why = why.Sentence
		}

		d.Others = append(d.Others, o)
	}

	return d, nil
}

func nameIn(p *yardview.Past, j id.Job) string {
	if d, seen := p.Detail(j); seen {
		return d.Name
	}

	return ""
}

// seatsThen lists where the run was put.
func seatsThen(p *yardview.Past) []string {
	var list []string
	for _, k := range p.Run.Ranks {
		list = append(list, seatText(k.Node, k.GPUs))
	}

	return list
}

func seatsNow(s *place.Start) []string {
	var list []string
	for _, seat := range s.Allocations {
		list = append(list, seatText(seat.Node, fleet.Indices(seat.GPUs)))
	}

	return list
}

func seatText(n id.Node, gpus []int) string {
	if len(gpus) == 0 {
		return string(n)
	}

	words := make([]string, len(gpus))
	for i, g := range gpus {
		words[i] = fmt.Sprint(g)
	}

	return fmt.Sprintf("%s GPU %s", n, strings.Join(words, "+"))
}

// rooms lists the nodes that also had room for the job.
func rooms(v *place.View, s *place.Start) []id.Node {
	m := fleet.NewMatcher(s.Item.Shape.Need)
	var list []id.Node
	for i := range v.Rooms {
		room := &v.Rooms[i]
		taken := false
		for _, seat := range s.Allocations {
			taken = taken || seat.Node == room.Node.ID
		}

		if _, fits := m.Fits(room); fits && !taken {
			list = append(list, room.Node.ID)
		}
	}

	return list
}

// maxOthers bounds how many other jobs are listed.
const maxOthers = 10

// tell explains the decision to people.
func (r *replay) tell(p *yardview.Past, d *Decision) error {
	var out strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	say("%s of %s was ordered at %s.", d.Run, p.Label(d.Job), d.At.UTC().Format(time.DateTime))
	say("")
	say("Then:  placed on %s", strings.Join(d.Then.Nodes, " and "))

	if d.Then.Reason != "" {
		say("       because: %s", d.Then.Reason)
	}

	if len(p.And) > 0 {
		say("       at the same time as %s", listJobs(p, p.And))
	}

	switch d.Verdict {
	case verdictSame:
		say("Again: same decision by %s", d.Policy)
	case verdictOther:
		say("Again: %s would place it on %s", d.Policy, strings.Join(d.Now.Nodes, " and "))
	default:
		say("Again: %s would leave it queued", d.Policy)
		say("       because: %s", d.Why)
	}

	if d.Now != nil {
		say("       because: %s", d.Now.Reason)
	}

	if len(d.Rooms) > 0 {
		say("       also had room: %s", listNodes(d.Rooms))
	}

	for _, o := range d.Stops {
		say("       it would preempt %s: %s", o.label(), o.Why)
	}

	say("")

	waiting := humanize.Count(d.Line, "queued job")
	if d.Place > 0 {
		waiting += fmt.Sprintf(", position %d", d.Place)
	}

	say("Queue: %s", waiting)

	for i, o := range d.Others {
		if i == maxOthers {
			say("       … and %d more", len(d.Others)-maxOthers)
			break
		}

		verb := "stays queued: "
		if o.Starts {
			verb = "starts as well: "
		}

		say("       %s %s%s", o.label(), verb, o.Why)
	}

	for i, g := range d.Gaps {
		if i == 0 {
			say("\nNot rebuilt exactly:")
		}

		say("  - %s", g)
	}

	_, err := fmt.Fprint(r.Stdout, plainLines(out.String()))

	return err
}

func (o Other) label() string {
	if o.Name != "" {
		return fmt.Sprintf("%s (%s)", o.Job, o.Name)
	}

	return string(o.Job)
}

func listNodes(nodes []id.Node) string {
	return listed(nodes, func(n id.Node) string { return string(n) })
}

func listJobs(p *yardview.Past, jobs []id.Job) string { return listed(jobs, p.Label) }

// listed names the first few of many things.
func listed[T any](all []T, name func(T) string) string {
	const limit = 5
	words := make([]string, 0, limit)
	for _, v := range all[:min(len(all), limit)] {
		words = append(words, name(v))
	}

	text := strings.Join(words, ", ")
	if more := len(all) - limit; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}

	return text
}

// plainLines lets nothing through to the terminal that would do something to it.
func plainLines(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(table.Plain(strings.TrimSuffix(line, "\n")) + "\n")
	}

	return out.String()
}
