package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/job"
)

func TestAFileWithoutEndDoesNotKeepOthersWaiting(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = p.now.Add(time.Second)
	for _, name := range []string{"a_train.jsonl", "events.out.tfevents.0", "train_log.csv"} {
		p.write("work/"+name, "")

		if err := os.Truncate(filepath.Join(p.work, "work", name), 1<<30); err != nil {
			t.Fatal(err)
		}
	}

	p.write("work/progress.csv", "step,loss\n1,5\n2,4\n")
	p.now = p.now.Add(scanEvery)
	more, err := p.g.Poll(p.now, false)
	if !more {
		t.Errorf("all of it was read at once: %v", err)
	}

	p.expect("loss", "1=5 2=4 from table (progress.csv)")
}

// Rules that take long to match cost the agent a bounded amount of work, and the rest of what it does goes on.
func TestExpensiveRulesAreSampled(t *testing.T) {
	t.Parallel()
	rules := make([]job.MetricRule, 16)
	for i := range rules {
		rules[i].Match = fmt.Sprintf(`(x?){40}x{40}y(?P<loss%d>[0-9.]+)`, i)
	}

	p := start(t, rules...)
	p.now = p.now.Add(time.Second)

	line := strings.Repeat("x", 1000) + "7\n"
	p.print(strings.Repeat(line, 60)) // in one piece
	for range 500 {
		p.print(line)
	}

	p.print(strings.Repeat("x", 40) + "y0.5\n")

	more, err := p.g.Poll(p.now, false)
	if err != nil || more {
		t.Errorf("more %v, %v", more, err)
	}

	// Without a bound it would be twenty times as much.
	spent := ruleSteps - p.g.output.parser.Budget
	if limit := int64(2 * ruleSteps); spent <= 0 || spent > limit {
		t.Errorf("%d steps were taken, want at most %d", spent, limit)
	}

	// When the program prints less all of it is looked at.
	p.now = p.now.Add(time.Second)
	p.print("the line after those that were skipped\n")
	p.print(strings.Repeat("x", 40) + "y0.25\n")
	p.poll()

	if s := p.g.Series("loss0"); s == nil {
		t.Error("a line that matches was not found")
	}
}

func TestAllFilesHaveTheirTurn(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = p.now.Add(time.Second)

	const files = 30
	for i := range files { // each as long as a piece: not all of them fit into one poll
		p.write(
			fmt.Sprintf("work/log%02d.jsonl", i),
			fmt.Sprintf("{\"step\": 1, \"m%d_loss\": 5}\n", i)+strings.Repeat(strings.Repeat("x", 99)+"\n", 5000),
		)
	}

	p.poll()

	for i := range files {
		p.expect(fmt.Sprintf("m%d_loss", i), fmt.Sprintf("1=5 from JSON lines (log%02d.jsonl)", i))
	}
}

func TestATableThatGoesOnWithOtherColumns(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = p.now.Add(time.Second)
	p.write("work/progress.csv", "step,loss\n1,5\n2,4\n")
	p.poll()
	p.add("work/progress.csv", "step,loss,acc\n3,3,0.5\n4,2,0.6\n")
	p.poll()
	p.expect("loss", "1=5 2=4 3=3 4=2 from table (progress.csv)")
	p.expect("acc", "3=0.5 4=0.6 from table (progress.csv)")
}

func TestWhatIsNoPlainFileIsLetBe(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = p.now.Add(time.Second)
	outside := filepath.Join(p.work, "outside.csv")
	p.write("outside.csv", "step,secret\n1,5\n")
	p.write("work/metrics.csv/inner.txt", "step,secret\n1,5\n")

	if err := os.Symlink(outside, filepath.Join(p.work, "work", "train.csv")); err != nil {
		t.Fatal(err)
	}

	if err := os.Symlink("/", filepath.Join(p.work, "work", "logs")); err != nil {
		t.Fatal(err)
	}

	if err := syscall.Mkfifo(filepath.Join(p.work, "work", "events.out.tfevents.1"), 0o600); err != nil {
		t.Fatal(err)
	}

	p.write("work/events.out.tfevents.2", strings.Repeat("garbage", 1000))
	p.write("work/loss.csv", "step,loss\n1,5\n")

	p.now = p.now.Add(scanEvery)
	if _, err := p.g.Poll(p.now, true); err == nil {
		t.Error("nothing is said about a file of garbage")
	}

	p.expect("loss", "1=5 from table (loss.csv)")
	p.expect("secret", "")
}

// Python writes NaN where JSON has nothing.
func TestJSONOfPythonInFiles(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = p.now.Add(time.Second)
	p.write(
		"work/trainer_state.json",
		`{"global_step": 3, "max_steps": 10, "log_history": [{"step": 1, "loss": 5.0}, {"step": 2, "loss": NaN}, {"step": 3, "loss": 4.0}]`,
	)

	p.poll() // half written
	p.expect("loss", "")
	p.add("work/trainer_state.json", "}")
	p.write("work/metrics.jsonl", "{\"step\": 1, \"val_loss\": NaN, \"acc\": 0.5}\n")
	p.poll()
	p.expect("loss", "1=5 3=4 from trainer_state.json")
	p.expect("acc", "1=0.5 from JSON lines (metrics.jsonl)")

	if s := p.g.Series("val_loss"); s == nil || s.NonFinite != 1 {
		t.Errorf("a value that is no number: %+v", s)
	}
}

// A bar is drawn behind a carriage return, so that the last one has no end.
func TestTheLastBarHasATime(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = p.now.Add(time.Second)
	p.print("\r 50%|██  | 1/2 [00:01<00:01, 1it/s, loss=5]")
	p.poll()
	p.print("\r100%|████| 2/2 [00:02<00:00, 1it/s, loss=4]")
	printed := seconds(p.now)
	p.poll()
	p.pollEnded(true)
	p.expect("loss", "1=5 2=4 from output (tqdm)")

	if last, ok := p.g.Series("loss").Last(); !ok || last.At != printed {
		t.Errorf("the last point is of %f, want %f", last.At, printed)
	}
}

func TestWhatIsNoNumberDoesNotTakeACurveOver(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.print("step 1 loss=5\nstep 2 loss=4\n")
	p.poll()
	p.write("told.jsonl", "{\"step\": 3, \"metrics\": {\"loss\": \"NaN\"}}\n")
	p.poll()
	p.expect("loss", "1=5 2=4 from output (lines)")

	if s := p.g.Series("loss"); s.NonFinite != 1 {
		t.Errorf("it was no number %d times", s.NonFinite)
	}

	p.add("told.jsonl", "{\"step\": 30, \"metrics\": {\"loss\": 3}}\n")
	p.poll()
	p.expect("loss", "30=3 from SDK")
}

// Of many values that are no numbers the newest is sent, with how many there were (newcomer 24).
func TestEveryValueThatIsNoNumberIsReported(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.print("step 1 loss=5\n")

	for step := range 33 {
		p.print(fmt.Sprintf("step %d loss=nan\n", step+2))
	}

	p.poll()

	sent, some := p.g.Unsent(1000)
	if !some || len(sent.Series) != 1 || sent.Series[0].NonFinite != 33 || len(sent.Series[0].Points) != 2 {
		t.Errorf("it reports %+v, want the number, the newest of the others and that there are 33", sent.Series)
	}
}
