package importer_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/history"
	"trainyard/internal/forecast/importer"
	"trainyard/test/fuzzing"
)

const runs = `run_id,round,org,system,benchmark,run,status,accelerator,accel_per_node,nodes,framework,global_batch_size,base_lr,weight_decay,minutes
1,v2.0,Dell,xe8545,resnet,0,success,NVIDIA A100-SXM4-80GB (400W),4,2,NGC MXNet 22.04,3264,10.5,5e-5,30
2,v2.0,Dell,xe8545,resnet,1,success,NVIDIA A100-SXM4-80GB (400W),4,2,NGC MXNet 22.04,3264,10.5,5e-5,32
3,v2.0,Dell,xe8545,resnet,2,aborted,NVIDIA A100-SXM4-80GB (400W),4,2,NGC MXNet 22.04,3264,10.5,5e-5,7
4,v2.0,DellEMC,other,ssd,0,success,N/A,0,1,"MXNet, PyTorch",,,,60
5,v1.1,Google,tpu,ssd,0,success,TPU v3,8,,TensorFlow,256,,,11.5
6,v1.1,Google,tpu,ssd,1,success,TPU v3,8,,TensorFlow,256,,,
`

func TestReadMLPerfMakesAJobOfEachConfiguration(t *testing.T) {
	t.Parallel()
	want := []history.Past{
		{
			Job: "mlperf-1", Group: "dell", Seconds: 31 * 60, Finished: time.Date(2022, 6, 1, 0, 0, 0, 0, time.UTC),
			Features: history.Features{
				Name:      "resnet",
				Owner:     "Dell",
				Task:      "vision",
				Model:     "resnet",
				Params:    25.6e6,
				Framework: "mxnet",
				Metric:    "top1_accuracy",
				Target:    0.759,
				Batch:     3264,
				Rate:      10.5,
				Hyper:     map[string]float64{"weight_decay": 5e-5},
				GPU:       "A100 SXM4 80GB",
				TFLOPS:    312,
				GPUs:      8,
				Nodes:     2,
			},
		},
		{
			Job:      "mlperf-4",
			Group:    "dell",
			Seconds:  3600,
			Finished: time.Date(2022, 6, 1, 0, 0, 0, 0, time.UTC),
			Features: history.Features{
				Name:   "ssd",
				Owner:  "DellEMC",
				Task:   "detection",
				Model:  "ssd",
				Metric: "map",
				Target: 0.34,
				Nodes:  1,
			},
		},
		{
			Job:      "mlperf-5",
			Group:    "google",
			Seconds:  690,
			Finished: time.Date(2021, 12, 1, 0, 0, 0, 0, time.UTC),
			Features: history.Features{
				Name:      "ssd",
				Owner:     "Google",
				Task:      "detection",
				Model:     "ssd",
				Framework: "tensorflow",
				Metric:    "map",
				Target:    0.23,
				Batch:     256,
				GPU:       "TPU v3",
				GPUs:      8,
			},
		},
	}

	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(runs)); err != nil {
		t.Fatal(err)
	}

	if err := z.Close(); err != nil {
		t.Fatal(err)
	}

	for name, text := range map[string]string{"plain": runs, "compressed": packed.String()} {
		got, err := importer.ReadMLPerf(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}

	all, err := importer.ReadMLPerfRuns(strings.NewReader(runs))
	if err != nil {
		t.Fatal(err)
	}

	if len(all) != 5 || all[2].Success || all[4].Goal != (curve.Goal{Value: 0.23, Rising: true, Set: true}) {
		t.Errorf("run by run it is %+v", all)
	}
}

func TestReadCSVReadsATeamsOldJobs(t *testing.T) {
	t.Parallel()
	const table = "\ufeffJob,seconds,finished,owner,model,batch,hyper.dropout,colour\n" +
		"old1,120.5,2026-03-01,ada,cnn,32,0.1,red\n" +
		",60,2026-03-01T12:00:00Z,,,,,\n" +
		"failed,0,,,,,,\n"

	want := []history.Past{
		{
			Job:      "old1",
			Seconds:  120.5,
			Finished: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
			Features: history.Features{Owner: "ada", Model: "cnn", Batch: 32, Hyper: map[string]float64{"dropout": 0.1}},
		},
		{Job: "row-2", Seconds: 60, Finished: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(12 * time.Hour)},
	}

	got, err := importer.ReadCSV(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestTablesThatCannotBeReadAreRefused(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct{ text, want string }{
		"empty":            {"", "has no header line"},
		"no seconds":       {"job,owner\na,b\n", `has no column "seconds"`},
		"a column twice":   {"seconds,Seconds\n1,2\n", `two columns named "seconds"`},
		"no number":        {"job,seconds,batch\na,1,2\nb,2,many\n", `row 2: batch "many" is not a number`},
		"no time":          {"seconds,finished\n1,yesterday\n", `finished "yesterday" is not a time`},
		"no number at all": {"seconds\nlong\n", `seconds "long" is not a number`},
		"a cell too many":  {"job,seconds\na,1,2\n", "cannot be read"},
		"damaged":          {"\x1f\x8bxx", "damaged"},
		"infinite":         {"seconds,hyper.x\n1,Inf\n", `hyper.x "Inf" is not a number`},
	} {
		_, err := importer.ReadCSV(strings.NewReader(tc.text))
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != "bad_table" || !strings.Contains(e.Error(), tc.want) {
			t.Errorf("%s: it says %v, want %q", name, err, tc.want)
		}
	}

	if _, err := importer.ReadMLPerf(strings.NewReader(strings.Replace(runs, "\n4,", "\nfour,", 1))); err == nil {
		t.Error("a run without a number was read")
	}
}

func FuzzReadCSV(f *testing.F) {
	f.Add("job,seconds,finished,hyper.x\na,1,2026-03-01,2\n")
	f.Add(runs)
	f.Add(fuzzing.Long("job,seconds,"))
	f.Add(runs + fuzzing.Long("a,1,2026-03-01,2\n"))

	f.Fuzz(func(t *testing.T, text string) {
		defer fuzzing.Bounded(t)()

		past, err := importer.ReadCSV(strings.NewReader(text))
		if err != nil {
			return
		}

		for _, p := range past {
			if p.Seconds <= 0 || p.Job == "" {
				t.Errorf("it read %+v", p)
			}
		}
	})
}
