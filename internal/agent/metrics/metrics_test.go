package metrics

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/job"
	"trainyard/internal/logs"
	"trainyard/internal/metric"
	"trainyard/test/fuzzing"
)

func TestWhatIsPrinted(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.print("step 1/10 loss=5\nstep 2/10 lo")
	p.poll()
	p.expect("loss", "1=5 from output (lines)")
	p.print("ss=4\n")
	p.printTo(logs.Stderr, "step 3/10 loss=3\n")
	p.poll()
	p.expect("loss", "1=5 2=4 3=3 from output (lines)")

	if got := p.progress(); got != "3 of 10" {
		t.Errorf("progress is %s", got)
	}

	p.print("step 4/10 loss=2")
	p.poll()
	p.expect("loss", "1=5 2=4 3=3 from output (lines)")
	p.pollEnded(true)
	p.expect("loss", "1=5 2=4 3=3 4=2 from output (lines)")

	if at := p.g.Series("loss").Points[0].At; at != seconds(begun) {
		t.Errorf("heard at %f, and was printed at %f", at, seconds(begun))
	}
}

func TestFilesOfRealLibraries(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = begun.Add(time.Hour)
	p.real("lightning-metrics.csv", "work/lightning_logs/version_0/metrics.csv")
	p.real("keras-training.csv", "work/training.csv")
	p.real("../tfevents/testdata/keras-train.tfevents", "work/logs/train/events.out.tfevents.1.host")
	p.real("keras-validation.tfevents", "work/logs/validation/events.out.tfevents.1.host")
	p.real("trainer_state.json", "checkpoints/checkpoint-60/trainer_state.json")
	p.write("work/mlruns/0/abc/metrics/m", "1794744010000 0.5 1\n1794744011000 0.25 2\n")
	p.poll()

	p.expect(
		"train_loss",
		"4=1.738 9=0.6819 14=0.3946 19=0.2521 24=0.02349 29=0.008287 34=0.004789 39=0.003286 44=0.0004288 49=0.0001455 54=8.213e-05 59=6.166e-05 from table (lightning_logs/version_0/metrics.csv)",
	)

	p.expect("mae", "0=1.574 1=1.131 2=0.8089 from table (training.csv)")
	p.expect("train/epoch_loss", "0=6.55 1=3.463 2=1.853 from TensorBoard (logs)")
	p.expect("validation/epoch_loss", "0=4.697 1=2.523 2=1.366 from TensorBoard (logs)")

	p.expect(
		"grad_norm",
		"5=4.275 10=2.447 15=1.78 20=4.003 25=4.311 30=4.179 35=3.397 40=3.997 45=2.466 50=3.766 55=2.763 60=1.65 from trainer_state.json",
	)

	p.expect("m", "1=0.5 2=0.25 from MLflow's files")

	if got := p.progress(); got != "60 of 60" {
		t.Errorf("progress is %s", got)
	}
}

func TestATableThatIsWrittenAnewWithMoreColumns(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = p.now.Add(time.Second)
	p.write("work/metrics.csv", "step,loss\n1,5\n2,4\n")
	p.poll()
	p.expect("loss", "1=5 2=4 from table (metrics.csv)")
	p.add("work/metrics.csv", "3,3\n4,")
	p.poll()
	p.expect("loss", "1=5 2=4 3=3 from table (metrics.csv)")
	p.write("work/metrics.csv", "step,loss,val_loss\n1,5,\n2,4,\n3,3,\n4,2,\n4,,2.5\n")
	p.poll()
	p.expect("loss", "1=5 2=4 3=3 4=2 from table (metrics.csv)")
	p.expect("val_loss", "4=2.5 from table (metrics.csv)")
}

func TestFilesThatHoldNoMetrics(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = p.now.Add(time.Second)
	p.write("work/train.csv", "id,label,text\n1,2,x\n")
	p.write("work/log.csv", "1,2,3\n4,5,6\n")
	p.write("work/train.jsonl", `{"text": "hello", "id": 3}`+"\n")
	p.write("work/logs.jsonl", "no JSON\n\x00\x00\n")
	p.write("work/node_modules/x/metrics.csv", "step,loss\n1,2\n")
	p.write("work/.git/metrics.csv", "step,loss\n1,2\n")
	p.write("work/data.csv", "step,loss\n1,2\n")
	p.poll()

	if len(p.g.series) > 0 {
		t.Errorf("heard %v", p.g.order)
	}
}

func TestWhatWasThereBeforeIsNotOfThisRun(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = begun.Add(-time.Hour) // shipped with the program
	p.write("work/metrics.csv", "step,loss\n1,5\n2,4\n")
	p.write("work/log.jsonl", `{"step": 1, "acc": 0.5}`+"\n")
	p.real("trainer_state.json", "checkpoints/checkpoint-60/trainer_state.json")
	p.real("../tfevents/testdata/keras-train.tfevents", "work/logs/events.out.tfevents.1.host")
	p.now = begun.Add(time.Hour)
	p.g.started = seconds(begun.Add(30 * time.Minute)) // after the events were written
	p.poll()

	if len(p.g.series) > 0 {
		t.Errorf("heard %v", p.g.order)
	}

	p.add("work/metrics.csv", "3,3\n")
	p.add("work/log.jsonl", `{"step": 2, "acc": 0.75}`+"\n")
	p.poll()
	p.expect("loss", "3=3 from table (metrics.csv)")
	p.expect("acc", "2=0.75 from JSON lines (log.jsonl)")
}

func TestAFileWrittenAtOnceIsOfThisRun(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = begun.Add(-4 * time.Millisecond) // written after the start, dated by the timer tick before it
	p.write("work/metrics.csv", "step,loss\n1,5\n2,4\n")
	p.now = begun.Add(time.Second)
	p.poll()
	p.expect("loss", "1=5 2=4 from table (metrics.csv)")
}

func TestTheSourceThatIsTrustedMost(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = p.now.Add(time.Second)
	p.print("step 1 loss=5\nstep 2 loss=4\n")
	p.poll()
	p.expect("loss", "1=5 2=4 from output (lines)")
	p.write("work/log.jsonl", `{"step": 10, "loss": 5.5, "total_steps": 100}`+"\n")
	p.print("step 3 loss=3\n")
	p.poll()
	p.expect("loss", "10=5.5 from JSON lines (log.jsonl)")
	p.print("step 4/7 loss=2\n")
	p.poll()
	p.expect("loss", "10=5.5 from JSON lines (log.jsonl)")

	if got := p.progress(); got != "10 of 100" {
		t.Errorf("progress is %s", got)
	}

	p.add("told.jsonl", `{"step": 20, "at": 1794744100, "metrics": {"loss": 6}}`+"\n"+`{"done": 20, "total": 50}`+"\n")
	p.poll()
	p.expect("loss", "20=6 from SDK")

	if got := p.progress(); got != "20 of 50" {
		t.Errorf("progress is %s", got)
	}
}

func TestTwoOfTheSameKindHaveTheirOwnNames(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = p.now.Add(time.Second)
	p.write("work/a/metrics.csv", "step,loss\n1,5\n")
	p.write("work/b/metrics.csv", "step,loss\n1,4\n2,3\n")
	p.poll()
	p.expect("loss", "1=5 from table (a/metrics.csv)")
	p.expect("b/loss", "1=4 2=3 from table (b/metrics.csv)")
}

func TestWhatTheSDKTells(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.add("told.jsonl", `{"step": 1, "at": 1794744001.5, "metrics": {"loss": 0.5, "acc": "NaN"}}`+"\n\nrubbish\n"+
		`{"note": "checkpoint_saved", "step": 1, "text": "ckpt/1", "at": 1794744002}`+"\n"+`{"step": 2, "metrics": {"lo`)
	p.poll()
	p.expect("loss", "1=0.5 from SDK")

	if at := p.g.Series("loss").Points[0].At; at != 1794744001.5 {
		t.Errorf("heard at %f", at)
	}

	if s := p.g.Series("acc"); s == nil || s.NonFinite != 1 {
		t.Errorf("what is no number: %+v", s)
	}

	p.add("told.jsonl", `ss": 0.25}}`+"\n")
	p.poll()
	p.expect("loss", "1=0.5 2=0.25 from SDK")

	news, _ := p.g.Unsent(100)
	if len(news.Notes) != 1 || news.Notes[0].Kind != "checkpoint_saved" || news.Notes[0].Text != "ckpt/1" ||
		news.Notes[0].At != 1794744002 {
		t.Errorf("notes: %+v", news.Notes)
	}
}

// TestStatusMessagesWithoutSteps: of a program that says how much it has done in percent, its metrics are by percent
// too, and what it estimates itself is passed on.
func TestStatusMessagesWithoutSteps(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.add("received.jsonl", `{"source": "status", "at": 1794744001, "step": 0, "done": 0, "total": 100}`+"\n"+
		`{"source": "status", "at": 1794744013, "step": 12, "done": 12, "total": 100, "remaining": 88, "metrics": {"loss": 4}}`+"\n"+
		`{"source": "status", "at": 1794744025, "step": 24, "done": 24, "total": 100, "remaining": 90, "metrics": {"loss": 3}}`+"\n")

	p.poll()
	p.expect("loss", "12=4 24=3 from Hugging Face's status messages")

	if got := p.progress(); got != "24 of 100" {
		t.Errorf("progress is %s", got)
	}

	news, _ := p.g.Unsent(100)
	if news.Remaining == nil || *news.Remaining != 90 {
		t.Errorf("the program's own estimate is %v, want 90 s", news.Remaining)
	}

	p.g.MarkSent()

	if news, more := p.g.Unsent(100); more {
		t.Errorf("it is sent again: %+v", news)
	}

	p.add("received.jsonl", `{"source": "status", "at": 1794744026, "remaining": 89}`+"\n")
	p.poll()

	if news, more := p.g.Unsent(100); !more || news.Remaining == nil || *news.Remaining != 89 || news.Done != nil {
		t.Errorf("of a message with an estimate alone %+v is sent", news)
	}
}

// TestProgressBarsTellTheTimeThatIsLeft: the outermost of nested bars is about the whole run.
func TestProgressBarsTellTheTimeThatIsLeft(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]float64{
		" 25%|██▌   | 5/20 [00:10<00:30,  2.00s/it, loss=0.2]\n":                          30,
		" 25%|██▌   | 5/20 [1:00:00<3:00:10, 720.00s/it]\n":                               3*3600 + 10,
		"train:  40%|████      | [00:20<00:30]\n":                                         30,
		"epochs:  10%|█ | 1/10 [00:10<01:30]\nbatches:  50%|█████ | 5/10 [00:05<00:05]\n": 90,
	} {
		p := start(t)
		p.print(text)
		p.poll()

		news, _ := p.g.Unsent(100)
		if news.Remaining == nil || *news.Remaining != want {
			t.Errorf("%q: %v s are left, want %g", text, news.Remaining, want)
		}
	}
}

func TestStatusMessagesSayTheLastValueAgain(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.add("received.jsonl", `{"source": "status", "at": 1794744001, "total": 60}`+"\n"+
		`{"source": "status", "at": 1794744006, "step": 5, "done": 5, "total": 60, "metrics": {"loss": 4}}`+"\n"+
		`{"source": "status", "at": 1794744011, "step": 9, "done": 9, "total": 60, "metrics": {"loss": 4}}`+"\n"+
		`{"source": "status", "at": 1794744016, "step": 12, "done": 12, "total": 60, "metrics": {"loss": 3}}`+"\n"+
		`{"source": "status", "at": 1794744017, "metrics": {"loss": 3, "train_loss": 3.5}}`+"\n"+
		`{"source": "url", "step": 3, "metrics": {"mine": 1}}`+"\n"+
		`{"source": "nobody", "step": 3, "metrics": {"his": 1}}`+"\n")

	p.poll()
	p.expect("loss", "5=4 12=3 from Hugging Face's status messages")
	p.expect("train_loss", "12=3.5 from Hugging Face's status messages")
	p.expect("mine", "3=1 from sent to the agent")
	p.expect("his", "")

	if got := p.progress(); got != "12 of 60" {
		t.Errorf("progress is %s", got)
	}
}

func TestRulesOfTheUser(t *testing.T) {
	t.Parallel()
	p := start(
		t,
		job.MetricRule{Match: `L(?P<step>\d+) (?P<loss>\S+)`},
		job.MetricRule{File: "out/*.txt"},
		job.MetricRule{File: "deep/**/res.dat"},
	)

	p.now = p.now.Add(time.Second)
	p.print("L1 5\nstep 7 loss=1\nL2 4\n")
	p.write("work/out/a.txt", "time,value\n1,0.5\n2,0.25\n")
	p.write("work/deep/er/res.dat", "step 5 nll=2\nstep 6 nll=1\n")
	p.poll()
	p.expect("loss", "1=5 2=4 from output (rule)")
	p.expect("value", "1=0.5 2=0.25 from file (out/a.txt)")
	p.expect("nll", "5=2 6=1 from file (deep/er/res.dat)")

	if _, err := New(Run{Rules: []job.MetricRule{{Match: "("}}}); err == nil {
		t.Error("a broken rule is taken")
	}
}

// A restart reads everything again: the curves are the same, and so is what the server makes of both.
func TestAnAgentThatStartsAnewFindsTheSame(t *testing.T) {
	t.Parallel()
	p := start(t)
	for i := range 30 {
		p.now = p.now.Add(time.Second)
		p.print(fmt.Sprintf("step %d loss=%g\n", i, 1/float64(i+1)))
		p.add("told.jsonl", fmt.Sprintf(`{"step": %d, "at": %d, "metrics": {"acc": %d}}`+"\n", i, p.now.Unix(), i))
	}

	p.poll()
	first := map[string]*metric.Series{"loss": p.g.Series("loss"), "acc": p.g.Series("acc")}
	p.follow()
	p.poll()

	for name, s := range first {
		if diff := cmp.Diff(s, p.g.Series(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A program that prints without end costs a bounded amount of work, and its curve keeps its shape.
func TestATorrentIsSampled(t *testing.T) {
	t.Parallel()
	p := start(t)
	const lines = 400_000

	var text strings.Builder
	for i := range lines {
		fmt.Fprintf(&text, "step %d loss=%g\n", i, 100-float64(i)/10_000)
		if text.Len() > 60_000 || i == lines-1 {
			p.print(text.String())
			text.Reset()
		}
	}

	p.poll()

	s := p.g.Series("loss")
	if s == nil || s.Count < 1000 || s.Count > lines/4 {
		t.Fatalf("heard %+v", s)
	}

	for _, point := range s.Points {
		if want := 100 - point.Step/10_000; math.Abs(point.Value-want) > 1e-3 {
			t.Fatalf("at %g it is %g, want %g", point.Step, point.Value, want)
		}
	}

	last, _ := s.Last()
	if last.Step < lines*0.9 {
		t.Errorf("the last step heard is %g", last.Step)
	}
}

func TestNewsStayNewsUntilTheyAreTaken(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.print("step 1/9 loss=5\nstep 2/9 loss=4\nstep 3/9 loss=nan\n")
	p.poll()

	first, ok := p.g.Unsent(1)
	if !ok || len(first.Series) != 1 || len(first.Series[0].Points) != 1 {
		t.Fatalf("one point was asked for: %+v", first)
	}

	again, _ := p.g.Unsent(100)
	if !slices.Equal([]int{len(again.Series[0].Points)}, []int{3}) || again.Series[0].Points[2].Value != nil ||
		*again.Done != 3 ||
		*again.Total != 9 {
		t.Fatalf("all: %+v", again)
	}

	p.g.MarkSent()

	if rest, ok := p.g.Unsent(100); ok {
		t.Errorf("after all was taken: %+v", rest)
	}

	p.print("step 4/9 loss=3\n")
	p.poll()

	next, _ := p.g.Unsent(100)
	if len(next.Series) != 1 || len(next.Series[0].Points) != 1 || next.Series[0].Points[0].Step != 4 {
		t.Errorf("what is new: %+v", next)
	}

	p.g.MarkSent()
	p.g.ResendAll()

	all, _ := p.g.Unsent(100)
	if len(all.Series) != 1 || len(all.Series[0].Points) != 3 || *all.Done != 4 {
		t.Errorf("to a server that has started anew: %+v", all)
	}
}

func TestANewSourceSendsAllItKnows(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = p.now.Add(time.Second)
	p.print("step 1 loss=5\n")
	p.poll()

	if _, ok := p.g.Unsent(100); !ok {
		t.Fatal("no news")
	}

	p.g.MarkSent()
	p.write("work/metrics.csv", "step,loss\n10,5\n20,4\n")
	p.poll()

	news, _ := p.g.Unsent(100)
	if len(news.Series) != 1 || len(news.Series[0].Points) != 2 || news.Series[0].Source != "table (metrics.csv)" {
		t.Errorf("news: %+v", news)
	}
}

func TestThereAreNotTooManyMetrics(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.print("step 1 loss=1\n")

	for i := range 2 * metric.MaxSeries {
		p.print(fmt.Sprintf(`{"step": 1, "m%d": 1}`+"\n", i))
	}

	p.poll()

	if len(p.g.series) != metric.MaxSeries || p.g.Dropped() == 0 {
		t.Errorf("%d metrics, %d dropped", len(p.g.series), p.g.Dropped())
	}

	p.expect("loss", "1=1 from output (lines)")
}

func TestPointsThatWaitForTheServerAreThinnedOut(t *testing.T) {
	t.Parallel()
	p := start(t)
	for i := range 10 {
		for j := range 1000 {
			p.print(fmt.Sprintf("step %d loss=%d\n", i*1000+j, j))
		}

		p.poll()
	}

	if n := len(p.g.series["loss"].unsent); n == 0 || n > 2*maxUnsent {
		t.Errorf("%d points wait", n)
	}
}

func TestOddThingsInTheWay(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = p.now.Add(time.Second)
	p.write("work/metrics.csv", "step,loss\n1,5\n")

	elsewhere := filepath.Join(t.TempDir(), "secret.csv")
	if err := os.WriteFile(elsewhere, []byte("step,secret\n1,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := os.Symlink(elsewhere, filepath.Join(p.work, "work", "log.csv")); err != nil {
		t.Fatal(err)
	}

	if err := os.MkdirAll(filepath.Join(p.work, "work", "history.csv"), 0o755); err != nil {
		t.Fatal(err)
	}

	p.poll()
	p.expect("loss", "1=5 from table (metrics.csv)")
	p.expect("secret", "")

	if err := os.Remove(filepath.Join(p.work, "work", "metrics.csv")); err != nil {
		t.Fatal(err)
	}

	p.poll() // it is gone, which is no trouble
	p.expect("loss", "1=5 from table (metrics.csv)")

	if err := os.Mkdir(filepath.Join(p.work, "told.jsonl"), 0o755); err != nil {
		t.Fatal(err)
	}

	if _, err := p.g.Poll(p.now, false); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder in the place of the SDK's file: %v", err)
	}
}

func TestADamagedFileIsToldAndTheRestIsRead(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = begun.Add(time.Hour)

	text, err := os.ReadFile("tfevents/testdata/keras-train.tfevents")
	if err != nil {
		t.Fatal(err)
	}

	bad := slices.Clone(text)
	bad[len(bad)-10] ^= 1 // in the last record
	p.write("work/logs/events.out.tfevents.1.host", string(bad))

	p.now = p.now.Add(scanEvery)
	if _, err := p.g.Poll(p.now, false); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("damage is told as %v", err)
	}

	p.expect("epoch_loss", "0=6.55 1=3.463 2=1.853 from TensorBoard (logs)")
	p.expect("epoch_learning_rate", "0=0.01 1=0.01 from TensorBoard (logs)")
	p.write("work/other/events.out.tfevents.2.host", "this is no event file at all")

	p.now = p.now.Add(scanEvery)
	if _, err := p.g.Poll(p.now, false); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("another file is told as %v", err)
	}

	p.poll() // once
}

func TestTimesOfRowsThatHaveNone(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = begun.Add(100 * time.Second)
	p.write("work/metrics.csv", "step,loss\n1,5\n2,4\n3,3\n4,2\n")
	p.poll()

	var got []float64
	for _, point := range p.g.Series("loss").Points {
		got = append(got, point.At-seconds(begun))
	}

	if diff := cmp.Diff([]float64{25, 50, 75, 100}, got); diff != "" {
		t.Errorf("rows of a file that was first seen after 100 s: %s", diff)
	}
}

func TestALargeWorkingDirectoryIsSearchedWithinBounds(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.now = p.now.Add(time.Second)
	for i := range maxFolder + 500 {
		p.write(fmt.Sprintf("work/data/%05d.txt", i), "")
	}

	p.write("work/runs/metrics.csv", "step,loss\n1,5\n")

	left := maxEntries
	if err := p.g.search(filepath.Join(p.work, "work"), "", 0, &left); err != nil {
		t.Fatal(err)
	}

	if looked := maxEntries - left; looked > maxFolder+10 {
		t.Errorf("%d entries were looked at", looked)
	}

	p.poll()
	p.expect("loss", "1=5 from table (runs/metrics.csv)")
}

func FuzzFiles(f *testing.F) {
	for _, name := range []string{"lightning-metrics.csv", "keras-training.csv", "trainer_state.json", "../tfevents/testdata/keras-train.tfevents"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}

		f.Add(text)
	}

	f.Add([]byte("1794744010000 0.5 1\n1794744011000 nan 2\n"))
	f.Add(fuzzing.Long([]byte("1794744010000 0.5 1\n")))
	f.Add(fuzzing.Long([]byte(`{"step": `)))

	f.Add(
		[]byte(
			`{"step": 1, "at": 5, "metrics": {"loss": "NaN"}, "note": "x"}` + "\n" + `{"done": "Infinity", "total": -1}` + "\n",
		),
	)

	f.Fuzz(func(t *testing.T, text []byte) {
		defer fuzzing.Bounded(t)()

		for kind := events; kind <= unknown; kind++ {
			w := newWatchedFile("x", "mlruns/0/1/metrics/m", kind, false)
			if w.reader == nil && !w.detectFormat(text) {
				continue
			}

			// All at once, and in two pieces.
			_, used, err := w.reader.decode(text)
			if used < 0 || used > len(text) {
				t.Fatalf("format %d: used %d of %d, %v", kind, used, len(text), err)
			}

			if _, rest, err := w.reader.decode(text[used:]); rest < 0 || rest > len(text)-used {
				t.Fatalf("format %d: then used %d, %v", kind, rest, err)
			}
		}

		g := &Gatherer{
			run:    Run{Run: "j1.1", Epoch: 1},
			now:    2e9,
			files:  map[string]*watchedFile{},
			series: map[string]*series{},
		}

		for _, sdk := range []bool{true, false} {
			told := newLineFile("", sdk)
			for line := range strings.Lines(string(text)) {
				told.take(g, []byte(strings.TrimSpace(line)), 5)
			}
		}

		news, _ := g.Unsent(100)
		for _, s := range news.Series {
			if len(s.Name) == 0 || len(s.Name) > metric.MaxName {
				t.Errorf("a metric called %q", s.Name)
			}

			for _, p := range s.Points {
				if math.IsNaN(p.Step) || math.IsInf(p.Step, 0) || p.Value != nil && math.IsNaN(*p.Value) {
					t.Errorf("a point that JSON does not have: %+v", p)
				}
			}
		}

		for _, n := range []*float64{news.Done, news.Total} {
			if n != nil && (math.IsNaN(*n) || *n < 0 || *n > maxStep) {
				t.Errorf("a count of %g", *n)
			}
		}
	})
}

func TestALongFileOfTheSDKIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	p := start(t)

	var text strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&text, `{"step": %d, "at": 1794744001, "metrics": {"loss": %d}}`+"\n", i, i%7)
	}

	p.add("told.jsonl", text.String())
	p.pollEnded(true)

	if s := p.g.Series("loss"); s == nil || s.Count != 100_000 {
		t.Errorf("heard %+v", s)
	}
}
