package lines

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/agent/metrics/reading"
	"trainyard/test/fuzzing"
)

// said formats a reading for the tables of tests: "tqdm 5: loss=4.1 (5 of 60)".
func said(kind Kind, r reading.Reading) string {
	out := string(kind)
	if r.Step.Known {
		out += fmt.Sprintf(" %g:", r.Step.Value)
	}

	for _, v := range r.Values {
		out += fmt.Sprintf(" %s=%g", v.Name, v.Value)
	}

	if r.Done.Known || r.Total.Value > 0 {
		out += fmt.Sprintf(" (%g of %g)", r.Done.Value, r.Total.Value)
	}

	return out
}

// hear parses the output of a program.
func hear(t testing.TB, rules []string, text string) []string {
	t.Helper()
	p, err := New(rules)
	if err != nil {
		t.Fatal(err)
	}

	var out []string
	emit := func(kind Kind, r reading.Reading) { out = append(out, said(kind, r)) }
	var s Splitter
	line := func(l []byte) { p.Line(l, emit) }
	s.Add([]byte(text), line)
	s.Flush(line)
	p.Flush(emit)

	return out
}

func TestLinesOfManyKinds(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name string
		text string
		want []string
	}{
		{"step and loss", "step=10 loss=0.5\nstep=20 loss=0.25", []string{"lines 10: loss=0.5 (10 of 0)", "lines 20: loss=0.25 (20 of 0)"}},
		{"step of total", "Step 10/100 - loss: 0.5, lr: 1e-3", []string{"lines 10: loss=0.5 lr=0.001 (10 of 100)"}},
		{"iterations as nanoGPT prints them", "step 0: train loss 4.2874, val loss 4.2823\niter 0: loss 4.2649, time 7.20ms, mfu -100.00%",
			[]string{"lines 0: train_loss=4.2874 val_loss=4.2823 (0 of 0)", "lines 0: loss=4.2649 mfu=-100 (0 of 0)"}},
		{"epochs alone", "Epoch 3/90 loss: 1.5 acc: 0.4\nEpoch 4/90 loss: 1.25 acc: 0.5",
			[]string{"lines 3: loss=1.5 acc=0.4 (3 of 90)", "lines 4: loss=1.25 acc=0.5 (4 of 90)"}},
		{"epochs from zero, up to the last", "Epoch 0/24\ntrain Loss: 0.5 Acc: 0.75\nEpoch 1/24\ntrain Loss: 0.4 Acc: 0.8",
			[]string{"lines 0: train_loss=0.5 acc=0.75 (0 of 25)", "lines 1: train_loss=0.4 acc=0.8 (1 of 25)"}},
		{"epoch and step in brackets", "Epoch [1/5], Step [100/600], Loss: 2.25\nEpoch [2/5], Step [100/600], Loss: 1.25",
			[]string{"lines 100: loss=2.25 (100 of 3000)", "lines 700: loss=1.25 (700 of 3000)"}},
		{"as PyTorch's MNIST example prints", "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.312343\nTrain Epoch: 2 [0/60000 (0%)]\tLoss: 0.12",
			[]string{"lines 640: loss=2.312343 (640 of 0)", "lines 60000: loss=0.12 (60000 of 0)"}},
		{"as PyTorch's ImageNet example prints", "Epoch: [0][  10/5005]\tTime  0.5 ( 0.6)\tData  0.0 ( 0.1)\tLoss 6.9e+00 (6.8e+00)\tAcc@1   0.39 (  0.10)",
			[]string{"lines 10: loss=6.9 acc@1=0.39 (10 of 0)"}},
		{"an end of an epoch is where its steps were", "epoch 1 step 50 loss=1\nepoch 1 step 100 loss=0.5\nepoch 1 val_loss=0.75",
			[]string{"lines 50: loss=1 (50 of 0)", "lines 100: loss=0.5 (100 of 0)", "lines 100: val_loss=0.75"}},
		{"steps that begin again go on", "step 50 loss=4\nstep 100 loss=3\nstep 1 loss=2\nstep 50 loss=1",
			[]string{"lines 50: loss=4 (50 of 0)", "lines 100: loss=3 (100 of 0)", "lines 101: loss=2 (101 of 0)", "lines 150: loss=1 (150 of 0)"}},
		{"a program that goes back to a checkpoint does steps anew", "step 900 loss=2\nstep 1000 loss=1\nstep 800 loss=1.5",
			[]string{"lines 900: loss=2 (900 of 0)", "lines 1000: loss=1 (1000 of 0)", "lines 800: loss=1.5 (800 of 0)"}},
		{"two kinds of lines with counts of their own", "step 1000 loss=2\nstep 3 val_loss=1\nstep 1100 loss=1",
			[]string{"lines 1000: loss=2 (1000 of 0)", "lines 3: val_loss=1 (3 of 0)", "lines 1100: loss=1 (1100 of 0)"}},
		{"no numbers", "step 7 loss=nan\nstep 8 loss=inf\nstep 9 loss=-inf", []string{"lines 7: loss=NaN (7 of 0)", "lines 8: loss=+Inf (8 of 0)", "lines 9: loss=-Inf (9 of 0)"}},
		{"colours", "\x1b[32mstep 5\x1b[0m loss=\x1b[1m0.5\x1b[0m", []string{"lines 5: loss=0.5 (5 of 0)"}},
		{"progress alone", "step 10/100", []string{"lines 10: (10 of 100)"}},
		{"a logger's prefix", "2026-11-15 12:00:01,123 INFO train.py:42 step 5 loss=0.5", []string{"lines 5: loss=0.5 (5 of 0)"}},
		{"ordinary lines", "Listening on port 8080\nError: 404 not found\n10/100 tests passed\ntook 12 ms\nversion 1.2.3\nhttp://a/b?loss\n\n", nil},
		{"JSON", `{"step": 10, "loss": 0.5, "total_steps": 100}` + "\n" + `{"current_steps": 20, "total_steps": 100, "loss": 0.25, "percentage": 20.0, "elapsed_time": "0:00:10", "epoch": 0.5}`,
			[]string{"json 10: loss=0.5 (10 of 100)", "json 20: loss=0.25 (20 of 100)"}},
		{"JSON within JSON", `{"global_step": 5, "train": {"loss": 1.5}, "metrics": {"acc": 0.5}}`, []string{"json 5: acc=0.5 train/loss=1.5"}},
		{"JSON with texts for what is no number", `{"step": 1, "loss": "NaN"}`, []string{"json 1: loss=NaN"}},
		{"JSON of an ordinary log", `{"level": "info", "duration": 12, "port": 80}` + "\n" + `{"msg": "hello"}` + "\n{1}\n{}", nil},
		{"a dictionary as Hugging Face printed it", "{'loss': 0.5, 'learning_rate': 5e-05, 'epoch': 1.0}", []string{"dict 1: loss=0.5 learning_rate=5e-05"}},
		{"a dictionary of texts as it prints it now", "{'loss': '0.5', 'epoch': '1.5'}", []string{"dict 1.5: loss=0.5"}},
		{"a dictionary with tensors", "{'step': 4, 'loss': tensor(0.5, device='cuda:0'), 'acc': 0.25}", []string{"dict 4: loss=0.5 acc=0.25"}},
		{"a bar without a total", "train: 120it [00:12, 10.1it/s, loss=0.5]", []string{"tqdm 120: loss=0.5 (120 of 0)"}},
		{"a bar with a percentage alone", " 40%|████      | [00:20<00:30]", []string{"tqdm 40: (40 of 100)"}},
		{"a bar in thousands", " 12%|█▏  | 1.20k/10.0k [00:10<01:00, 120it/s, loss=0.5]", []string{"tqdm 1200: loss=0.5 (1200 of 10000)"}},
		{"a bar for each epoch", "Epoch 1/3: 50%|█ | 5/10 [00:10<01:00, 1it/s, loss=4]\rEpoch 1/3: 100%|█ | 10/10 [00:10<01:00, 1it/s, loss=3]\rEpoch 2/3: 10%|█ | 1/10 [00:10<01:00, 1it/s, loss=2]\n",
			[]string{"tqdm 5: loss=4 (5 of 30)", "tqdm 10: loss=3 (10 of 30)", "tqdm 11: loss=2 (11 of 30)"}},
		{"a bar that seemed to be all and was not", "  0%|  | 0/10 [00:00<?, ?it/s]\r100%|██| 10/10 [00:01<00:00, 9it/s]\n  0%|  | 0/10 [00:00<?, ?it/s]\r",
			[]string{"tqdm 0: (0 of 10)", "tqdm 10: (10 of 10)", "tqdm 10: (10 of 0)"}},
		{"bars of chores", "Downloading data: 50%|█ | 5/10 [00:10<01:00, 1MB/s]\rMap: 50%|█ | 5/10 [00:10<01:00, 1 examples/s]\n", nil},
		{"Keras as it was", "Epoch 2/3\n 5/20 [=====>...] - ETA: 3s - loss: 0.5 - accuracy: 0.75", []string{"keras 25: loss=0.5 accuracy=0.75 (25 of 60)"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			if diff := cmp.Diff(test.want, hear(t, nil, test.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRulesGoBeforeGuesses(t *testing.T) {
	t.Parallel()

	for _, test := range []struct{ name, rule, text, want string }{
		{"named groups are metrics", `it (?P<step>\d+)\s+L=(?P<loss>\S+)`, "it 7  L=0.5 acc=3", "rule 7: loss=0.5 (7 of 0)"},
		{"a total", `(?P<step>\d+) of (?P<total>\d+): (?P<nll>\S+)`, "7 of 70: 1.5", "rule 7: nll=1.5 (7 of 70)"},
		{"epochs", `E(?P<epoch>\d+)/(?P<epochs>\d+) (?P<loss>\S+)`, "E3/9 0.5", "rule 3: loss=0.5 (3 of 9)"},
		{"steps in epochs", `E(?P<epoch>\d+)/(?P<epochs>\d+) (?P<step>\d+)/(?P<total>\d+) (?P<loss>\S+)`, "E1/9 5/10 0.5", "rule 5: loss=0.5 (5 of 90)"},
		{"a name in the line", `^(?P<name>\w+) is (?P<value>\S+)`, "dice is 0.5", "rule dice=0.5"},
		{"what does not match is guessed", `nothing`, "step=1 loss=2", "lines 1: loss=2 (1 of 0)"},
		{"what matches and is no number is guessed", `loss=(?P<loss>\w+)`, "step=1 loss=high acc=0.5", "lines 1: acc=0.5 (1 of 0)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			if diff := cmp.Diff([]string{test.want}, hear(t, []string{test.rule}, test.text)); diff != "" {
				t.Error(diff)
			}
		})
	}

	if _, err := New([]string{"("}); err == nil || !strings.Contains(err.Error(), "regular expression") {
		t.Errorf("a broken rule: %v", err)
	}
}

// The files were printed by the programs themselves: three epochs of 20 steps each.
func TestWhatRealProgramsPrint(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		file, metric, want, last string
	}{
		{"huggingface", "loss", "5=4.172 10=3.434 15=2.779 20=2.307 25=2.206 30=2.547 35=1.978 40=2.51 45=1.546 50=1.957 55=2.383 60=1.942", "60 of 60"},
		{"huggingface", "eval_loss", "20=2.617 40=2.073 60=1.9", "60 of 60"},
		{"lightning", "train_loss", "5=1.74 10=0.682 15=0.395 20=0.252 25=0.0235 30=0.00829 35=0.00479 40=0.00329 45=0.000429 50=0.000145 55=8.21e-05 60=6.17e-05", "60 of 0"},
		{"lightning", "val_loss", "20=0.0612 40=0.00107 60=2.4e-05", "60 of 0"},
		{"keras", "val_loss", "16=4.6969 32=2.5229 48=1.3658", "48 of 48"},
		{"keras", "mae", "1=2.034 16=2.0414 17=1.6323 32=1.4773 33=1.6642 48=1.0673", "48 of 48"},
		{"keras-verbose-2", "loss", "16=3.8206 32=1.9746 48=1.0227", "48 of 48"},
		{"tqdm-nested", "loss", "0=0.2 5=0.1 10=0.0667 15=0.05 20=0.04 25=0.0333 30=0.0286 35=0.025 40=0.0222 45=0.02 50=0.0182 55=0.0167 60=0.0167", "60 of 60"},
	} {
		t.Run(test.file+" "+test.metric, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("testdata/" + test.file + ".txt")
			if err != nil {
				t.Fatal(err)
			}

			p, err := New(nil)
			if err != nil {
				t.Fatal(err)
			}

			got, last := map[float64]float64{}, ""
			var order []float64
			emit := func(_ Kind, r reading.Reading) {
				for _, v := range r.Values {
					if v.Name == test.metric {
						if _, again := got[r.Step.Value]; !again {
							order = append(order, r.Step.Value)
						}

						got[r.Step.Value] = v.Value
					}
				}

				if r.Done.Known {
					last = fmt.Sprintf("%g of %g", r.Done.Value, r.Total.Value)
				}
			}

			var s Splitter
			s.Add(text, func(l []byte) { p.Line(l, emit) })
			p.Flush(emit)

			var points []string
			for _, step := range order {
				points = append(points, fmt.Sprintf("%g=%g", step, got[step]))
			}

			if diff := cmp.Diff(test.want, strings.Join(points, " ")); diff != "" {
				t.Error(diff)
			}

			if last != test.last {
				t.Errorf("it ends at %s, want %s", last, test.last)
			}
		})
	}
}

func TestOutputInPiecesIsTheSameOutput(t *testing.T) {
	t.Parallel()
	text := "step 1 loss=5\rstep 2 loss=4\nstep 3 loss=3\r\nstep 4 loss=2\n"
	want := hear(t, nil, text)

	for size := 1; size < len(text); size++ {
		p, err := New(nil)
		if err != nil {
			t.Fatal(err)
		}

		var got []string

		var s Splitter
		for i := 0; i < len(text); i += size {
			s.Add([]byte(text[i:min(i+size, len(text))]), func(l []byte) {
				p.Line(l, func(kind Kind, r reading.Reading) { got = append(got, said(kind, r)) })
			})
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in pieces of %d: %s", size, diff)
		}
	}
}

func TestWhatIsLeftOutTakesTheLinesAtBothEndsWithIt(t *testing.T) {
	t.Parallel()
	var got []string
	keep := func(l []byte) { got = append(got, string(l)) }
	var s Splitter
	s.Add([]byte("one\ntw"), keep)
	s.Skip()
	s.Add([]byte("ree\nfour\n"), keep)
	s.Add([]byte(strings.Repeat("x", 3*maxSegment)), keep)
	s.Add([]byte("y\nfive\n"), keep)

	if diff := cmp.Diff([]string{"one", "four", "five"}, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzLine(f *testing.F) {
	for _, name := range []string{"huggingface", "lightning", "keras", "tqdm-nested"} {
		text, err := os.ReadFile("testdata/" + name + ".txt")
		if err != nil {
			f.Fatal(err)
		}

		f.Add(text[:min(len(text), 2000)])
	}

	f.Add(
		[]byte(
			"Epoch: [0][  10/5005]\tLoss 6.9e+00 (6.8e+00)\n{'a': 1, 'b': tensor(2, x)}\n{\"step\": 1e999, \"loss\": \"NaN\"}\n",
		),
	)

	f.Add([]byte("\x81  - 00"))
	f.Add(fuzzing.Long([]byte("{'a': ")))
	f.Add(fuzzing.Long([]byte("loss=1 ")))

	f.Fuzz(func(t *testing.T, text []byte) {
		defer fuzzing.Bounded(t)()

		p, err := New([]string{`(?P<name>\w+)=(?P<value>\S+)`})
		if err != nil {
			t.Fatal(err)
		}

		var s Splitter

		emit := func(_ Kind, r reading.Reading) {
			if r.Empty() {
				t.Error("a reading that says nothing")
			}

			for _, v := range r.Values {
				if v.Name == "" || reading.Name(v.Name) != v.Name {
					t.Errorf("%q is no name", v.Name)
				}
			}
		}

		line := func(l []byte) { p.Line(l, emit) }
		s.Add(text, line)
		s.Flush(line)
		p.Flush(emit)
	})
}
