package forecasts

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// wishes is what a job file says about when the job is done.
type wishes struct {
	Expect job.Duration `json:"expect"`
	Target *job.Target  `json:"target"`
}

// wishesOf reads them from a job's file. Of one that a newer yard wrote in another way
// nothing is known.
func wishesOf(j *api.JobDetail) wishes {
	var w wishes
	if len(j.Spec) == 0 || json.Unmarshal(j.Spec, &w) != nil {
		return wishes{}
	}

	return w
}

// section writes the forecast of a job below a heading, nothing if the job has ended or there is none.
func (f *Forecasts) section(j *api.JobDetail, head string, methods bool) error {
	made := j.Forecast
	if made == nil || j.State.Final() {
		return nil
	}
	if made.Basis == job.BasisNone {
		return f.write("%s: %s\n", head, table.Plain(orElse(made.Why, "nothing is known yet")))
	}
	if err := f.write("%s:\n", head); err != nil {
		return err
	}

	now, w := f.now(), wishesOf(j)
	made = asOf(&j.Job, now)
	fields := append(f.times(j, &w, now), f.grounds(made, &w)...)
	for _, e := range made.Elsewhere {
		fields = append(fields, console.Field{Name: "On " + table.GPUs(e.GPUs, e.GPU, 0, false), Value: elsewhere(&e)})
	}

	for i := range fields {
		fields[i].Name = "  " + fields[i].Name
	}

	if err := f.Fields(fields...); err != nil || !methods || len(made.Methods) == 0 {
		return err
	}
	if err := f.write("\n"); err != nil {
		return err
	}

	return f.methodTable(made).Write(f.Stdout)
}

// times says how long, until when, and for how much.
func (f *Forecasts) times(j *api.JobDetail, w *wishes, now time.Time) []console.Field {
	made := j.Forecast
	rest := left(&j.Job, now)

	label := "80% prediction interval: "
	if made.Guess {
		label = "guess: "
	}

	takes := console.Field{Name: "Duration", Value: length(rest.Mid) + interval(rest, label, length)}
	if made.Guess && rest.Low == rest.High {
		takes.Value += " (guess)"
	}

	starts := ""
	end := f.ends(made, now)
	startKnown := runs(j.State) || made.Wait != (job.Band{}) && !paused(j.State)

	switch {
	case runs(j.State):
		takes.Name = "Remaining"
		if rest.Mid < 1 {
			takes.Value = anyMoment + ", in " + length(rest.High) + " at the latest"
		}
	case j.Started != nil:
		takes.Name = "Remaining"
	}

	if !runs(j.State) {
		switch {
		case paused(j.State):
			starts, end = "when it is resumed: trainyard resume "+string(j.ID), length(rest.Mid)+" after it is resumed"
		case !startKnown:
			end = length(rest.Mid) + " after it starts (start time unknown)"
		default:
			starts = "in " + length(made.Wait.Mid) + interval(made.Wait, "", length)
		}
	}

	switch {
	case made.Starting && runs(j.State):
		return []console.Field{{Name: takes.Name, Value: "unknown: its program is starting"}}
	case noted(&j.Job, job.NoticeStalled):
		takes.Value = "unknown: " + orElse(made.Remarks[job.NoticeStalled], "no progress")
		takes.Color = table.Red
		end = ""
	case !made.Timed() && !paused(j.State):
		end = ""
	}

	if never(made) {
		takes.Value = "unknown: it will probably not reach its target"
		takes.Color = table.Red
		end = ""
	}

	fields := []console.Field{{Name: "Estimated start", Value: starts}, takes, {Name: "Estimated finish", Value: end}}
	if made.Timed() && !never(made) && !noted(&j.Job, job.NoticeStalled) {
		expected, _ := lateness(&j.Job)
		if startKnown || expected > 0 {
			fields = append(fields, onTime(&j.Job))
		}

		fields = append(fields, asExpected(&j.Job, w.Expect, now))
	}

	return append(fields, cost(made, j.Budget))
}

// onTime says whether a job will be done by its deadline, if it has one.
func onTime(j *api.Job) console.Field {
	field := console.Field{Name: "On time"}
	if j.Deadline == nil {
		return field
	}

	expected, worst := lateness(j)
	early := j.Deadline.Sub(j.Forecast.End)

	switch {
	case expected > 0:
		field.Value, field.Color = "no: "+humanize.Duration(expected)+" after its deadline", table.Red
	case worst > 0:
		field.Value, field.Color = "maybe: up to "+humanize.Duration(worst)+" after its deadline", table.Yellow
	case early < tolerance:
		field.Value, field.Color = "yes: just before its deadline", table.Green
	default:
		field.Value, field.Color = "yes: "+humanize.Duration(early)+" before its deadline", table.Green
	}

	return field
}

// asExpected says whether a job will run as long as its owner expects, if they said so.
func asExpected(j *api.Job, expect job.Duration, now time.Time) console.Field {
	field := console.Field{Name: "As expected"}
	if expect <= 0 {
		return field
	}

	than := " longer than its expect of " + humanize.Duration(expect)
	expected, worst := excess(j, expect, now)

	switch {
	case expected > 0:
		field.Value, field.Color = "no: "+humanize.Duration(expected)+than, table.Yellow
	case worst > 0:
		field.Value = "yes, but perhaps " + humanize.Duration(worst) + than
	default:
		field.Value, field.Color = "yes: within its expect of "+humanize.Duration(expect), table.Green
	}

	return field
}

// cost says what a job will have cost when it is done.
func cost(made *api.Forecast, budget job.Money) console.Field {
	b := made.Cost
	if b == (job.Band{}) {
		return console.Field{}
	}

	field := console.Field{Name: "Cost", Value: humanize.Dollars(b.Mid) + interval(b, "", humanize.Dollars)}
	if budget <= 0 {
		return field
	}

	switch limit := float64(budget.Amount()); {
	case b.Mid > limit:
		field.Value, field.Color = field.Value+", exceeds its budget of "+humanize.Dollars(budget.Amount()), table.Red
	case b.High > limit:
		field.Value, field.Color = field.Value+", may exceed its budget of "+humanize.Dollars(budget.Amount()),
			table.Yellow
	}

	return field
}

// grounds says what a forecast is based on and how accurate such forecasts are.
func (f *Forecasts) grounds(made *api.Forecast, w *wishes) []console.Field {
	var path []string
	for _, n := range made.Path {
		path = append(path, string(n))
	}

	done := ""
	if made.Done > 0 {
		done = humanize.Percent(made.Done)
	}

	metric := made.Metric
	if metric != "" && made.Source != "" {
		metric += ", from " + made.Source
	}

	return []console.Field{
		{Name: "Done", Value: done},
		target(made, w.Target),
		{Name: "Metric", Value: metric},
		{Name: "Basis", Value: orElse(made.Why, basis[made.Basis]), Wrap: true},
		{Name: "Accuracy", Value: accuracy(made)},
		{Name: "Critical path", Value: strings.Join(path, ", ")},
	}
}

// basis is what a forecast is based on, in words.
var basis = map[job.Basis]string{
	job.BasisNone:    "nothing",
	job.BasisSteps:   "the amount of work that its program declares",
	job.BasisCurve:   "its own curve",
	job.BasisHistory: "similar jobs that have finished",
	job.BasisBoth:    "its own curve and similar jobs that have finished",
	job.BasisExpect:  "its owner's estimate (expect)",

	job.BasisReported: "the remaining time that its program reports",
}

// target says what a job is to reach, and the probability that it does not.
func target(made *api.Forecast, t *job.Target) console.Field {
	field := console.Field{Name: "Target"}
	switch {
	case t == nil:
	case t.AtMost != nil:
		field.Value = fmt.Sprintf("%s at most %g", t.Metric, *t.AtMost)
	case t.AtLeast != nil:
		field.Value = fmt.Sprintf("%s at least %g", t.Metric, *t.AtLeast)
	}

	const worthSaying = 0.005
	if made.Never < worthSaying {
		return field
	}

	if field.Value != "" {
		field.Value += ": "
	}

	field.Value += humanize.Percent(made.Never) + " probability of missing it"
	switch {
	case made.Never >= likelyNever:
		field.Color = table.Red
	case made.Never >= 0.1:
		field.Color = table.Yellow
	}

	return field
}

// accuracy says how often such intervals were right; nothing for a guess, which has not been checked.
func accuracy(made *api.Forecast) string {
	if made.Guess || made.Records == 0 {
		return ""
	}

	if made.Checked == 0 {
		return fmt.Sprintf(
			"based on %s of finished jobs; no such interval has been checked yet",
			humanize.Count(made.Records, "forecast"),
		)
	}

	return fmt.Sprintf("%s of %s contained the actual finish",
		humanize.Percent(made.Covered), humanize.Count(made.Checked, "such interval"))
}

// elsewhere says how a job would fare on other GPUs: "3h, $12.00 (based on TFLOPS only)".
func elsewhere(e *job.Elsewhere) string {
	text := length(e.Remaining)
	if e.Cost > 0 {
		text += ", " + humanize.Dollars(e.Cost)
	}

	if e.Why != "" {
		text += " (" + e.Why + ")"
	}

	return text
}

// methodTable lists what each method says.
func (f *Forecasts) methodTable(made *api.Forecast) *table.Table {
	t := f.NewTable("  METHOD", "REMAINING", "WEIGHT", "MEDIAN ERROR")

	for _, m := range made.Methods {
		rest := "no estimate"
		usual := ""

		if m.Remaining >= 0 {
			rest = length(m.Remaining)
		}

		if m.Error >= 0 {
			usual = humanize.Percent(m.Error)
		}

		t.Row("  "+m.Method, rest, humanize.Percent(m.Weight), usual)
	}

	return t
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}

	return text
}
