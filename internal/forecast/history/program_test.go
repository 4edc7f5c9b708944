package history_test

import (
	"testing"

	"trainyard/internal/forecast/history"
)

func TestWhatACommandRuns(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct{ name, one, other string }{
		{"train.py", "python3 train.py --seed 1 --data /mnt/a", "python3 train.py --seed 22 --data /mnt/b/c"},
		{"train.py", "python train.py --lr=1e-4 seed7 out/run_1", "python3 ./src/train.py --lr=3e-4 seed12 out/run_2"},
		{"train.py", "cd /work/a\npython3 train.py model=resnet50", "cd /work/b && python train.py model=resnet50"},
		{"train.py", "WANDB_MODE=offline torchrun --nproc_per_node=2 train.py", "torchrun --nproc_per_node=8 train.py"},
		{"nanogpt.train", "python -m nanogpt.train 2026-11-14", "python -m nanogpt.train 2026-11-15"},
		{"sleep", "sleep 10", "sleep 3600"},
		{"", "", "cd /tmp"},
	} {
		one, other := history.ProgramOf(tt.one), history.ProgramOf(tt.other)
		if one.Name != tt.name || one != other {
			t.Errorf("%q runs %+v, %q %+v; want the same, of name %q", tt.one, one, tt.other, other, tt.name)
		}
	}

	for _, tt := range [][2]string{
		{"python train.py", "python eval.py"},
		{"python train.py --model resnet50", "python train.py --model gpt2"},
		{"python train.py", "python train.py --fp16 --compile"},
	} {
		if one, other := history.ProgramOf(tt[0]), history.ProgramOf(tt[1]); one.Words == other.Words {
			t.Errorf("%q and %q are not told apart: %q", tt[0], tt[1], one.Words)
		}
	}
}

func TestAJobIsCalledAsTheOneBeforeIt(t *testing.T) {
	t.Parallel()

	for name, want := range map[string]string{"Resnet-12": "resnet", "resnet": "resnet", "gpt2 sweep 7": "gpt2 sweep", "42": ""} {
		if got := history.PlainName(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
