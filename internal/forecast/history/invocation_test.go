package history_test

import (
	"testing"

	"trainyard/internal/forecast/history"
)

func TestWhatDeterminesMemoryIsKept(t *testing.T) {
	t.Parallel()

	const command = "python train.py --batch-size 64 --model big --seed 1"

	for other, same := range map[string]bool{
		"python  train.py --batch-size 64\n--model 'big' --seed 1":     true,
		"python train.py --batch-size 64 --model big --seed=2":         true,
		"python train.py --batch-size 64 --model big --lr 1e-3":        true,
		"python train.py --batch-size 64 --model big --output_dir /x7": true,
		"python train.py --batch-size 64 --model big trainer.epochs=9": true,
		"SEED=4 python train.py --batch-size 64 --model big":           true,
		"python train.py --batch-size 64 --model big":                  true,
		"python train.py --seed --batch-size 64 --model big":           true,
		"python train.py --batch-size 32 --model big --seed 1":         false,
		"python train.py --batch-size 64 --model small --seed 1":       false,
		"python train.py --batch-size 64 --model big --seed 1 --fp32":  false,
		"python other.py --batch-size 64 --model big --seed 1":         false,
		"python train.py --batch-size 64 --model big --lr --seed 1 2":  false,
		"python train.py --batch-size 64 --model big --data /mnt/huge": false,
	} {
		if got := history.Invocation(other) == history.Invocation(command); got != same {
			t.Errorf("%q and %q: the same %v, want %v", command, other, got, same)
		}
	}
}
