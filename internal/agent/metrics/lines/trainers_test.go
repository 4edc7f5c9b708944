package lines

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWhatTrainersPrint parses lines of well-known trainers.
func TestWhatTrainersPrint(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name string
		text string
		want []string
	}{
		{"timm", "Train: 0 [ 100/1251 (  8%)]  Loss: 6.90 (6.92)  Time: 0.234s,  829.12/s  (1.234s,  829.12/s)  LR: 1.000e-06  Data: 0.500 (0.500)\n" +
			"Train: 1 [   0/1251 (  0%)]  Loss: 6.80 (6.85)  LR: 1.000e-06\n" +
			"Test: [  48/48]  Time: 0.234 (0.250)  Loss:   1.234 ( 1.300)  Acc@1:  75.200 ( 70.100)\n*** Best metric: 70.1 (epoch 1)",
			[]string{"lines 100: loss=6.9 lr=1e-06 (100 of 0)", "lines 1251: loss=6.8 lr=1e-06 (1251 of 0)", "lines 1251: test_loss=1.234 test_acc@1=75.2"}},
		{"fairseq's JSON behind a logger's words", `2026-11-15 13:00:00 | INFO | train_inner | {"epoch": 1, "update": 0.5, "loss": "8.5", "ppl": "274.4", "num_updates": "100", "lr": "1e-05"}`,
			[]string{"json 100: loss=8.5 lr=1e-05 ppl=274.4"}},
		{"fairseq's plain form", "epoch 001:    100 / 1251 loss=8.5, nll_loss=8.1, wps=12000, num_updates=100, lr=1e-05, clip=100, wall=40",
			[]string{"lines 100: loss=8.5 nll_loss=8.1 lr=1e-05 (100 of 0)"}},
		{"Megatron", " [2026-11-15 13:00:00] iteration      100/    5000 | consumed samples:        25600 | elapsed time per iteration (ms): 1234.5 | " +
			"learning rate: 1.000000E-05 | global batch size:   256 | lm loss: 7.100000E+00 | loss scale: 4096.0 | grad norm: 1.234 | number of skipped iterations:   0 |",
			[]string{"lines 100: loss=7.1 (100 of 5000)"}},
		{"Ultralytics", "      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size\n" +
			"      1/100      2.31G      1.234      2.345         45        640:  50%|█████     | 50/100 [00:10<00:10,  5.00it/s]\n" +
			"      2/100      2.31G      1.134      2.145         45        640:  50%|█████     | 50/100 [00:10<00:10,  5.00it/s]",
			[]string{"tqdm 50: (50 of 10000)", "tqdm 150: (150 of 10000)"}},
		{"XGBoost", "[0]\ttrain-rmse:0.35\tvalid-rmse:0.45\n[10]\ttrain-rmse:0.3+0.01\tvalid-rmse:0.4\n[13:00:01] WARNING: ../src/learner.cc:767: Parameters: { \"x\" } are not used.",
			[]string{"lines 0: train-rmse=0.35 valid-rmse=0.45 (0 of 0)", "lines 10: train-rmse=0.3 valid-rmse=0.4 (10 of 0)"}},
		{"LightGBM", "[LightGBM] [Info] Total Bins 6132\n[1]\ttraining's binary_logloss: 0.6\tvalid_1's binary_logloss: 0.65",
			[]string{"lines 1: training_binary_logloss=0.6 valid_1_binary_logloss=0.65 (1 of 0)"}},
		{"CatBoost", "10:\tlearn: 0.5421\ttest: 0.5500\tbest: 0.5500 (10)\ttotal: 46.5ms\tremaining: 46.4s", []string{"lines 10: learn=0.5421 test=0.55 (10 of 0)"}},
		{"scikit-learn", "Iteration 1, loss = 0.69\n[CV 1/5; 3/10] END C=1.0, gamma=0.1;, score=0.951 total time=   0.3s\nFitting 5 folds for each of 10 candidates, totalling 50 fits",
			[]string{"lines 1: loss=0.69 (1 of 0)"}},
		{"a test after each epoch, as in PyTorch's MNIST example", "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.2\nTest set: Average loss: 0.0461, Accuracy: 9846/10000 (98%)",
			[]string{"lines 640: loss=2.2 (640 of 0)", "lines 640: test_average_loss=0.0461"}},
		{"PyTorch's tutorial on transfer learning", "Epoch 0/24\ntrain Loss: 0.5 Acc: 0.75\nval Loss: 0.4 Acc: 0.8", []string{"lines 0: train_loss=0.5 acc=0.75 (0 of 25)", "lines 0: val_loss=0.4 val_acc=0.8 (0 of 25)"}},
		{"detectron2", "[11/15 13:00:00 d2.utils.events]:  eta: 0:12:34  iter: 19  total_loss: 1.5  loss_cls: 0.5  time: 0.5  data_time: 0.01  lr: 0.00025  max_mem: 2345M",
			[]string{"lines 19: total_loss=1.5 loss_cls=0.5 lr=0.00025 (19 of 0)"}},
		{"mmengine", "11/15 13:00:00 - mmengine - INFO - Epoch(train)   [1][ 50/391]  lr: 1.0000e-02  eta: 0:12:34  time: 0.1234  memory: 1234  loss: 2.3012\n" +
			"11/15 13:01:00 - mmengine - INFO - Epoch(train)   [2][ 50/391]  lr: 1.0000e-02  loss: 2.1\n" +
			"11/15 13:01:30 - mmengine - INFO - Epoch(val) [2][79/79]    accuracy/top1: 45.2  data_time: 0.01  time: 0.05",
			[]string{"lines 50: lr=0.01 loss=2.3012 (50 of 0)", "lines 441: lr=0.01 loss=2.1 (441 of 0)", "lines 441: val_accuracy/top1=45.2"}},
		{"mmengine by iterations", "11/15 13:00:00 - mmengine - INFO - Iter(train) [  50/80000]  lr: 1.0000e-02  eta: 1 day, 0:12:34  time: 0.1234  loss: 2.3012",
			[]string{"lines 50: lr=0.01 loss=2.3012 (50 of 80000)"}},
		{"DeepSpeed", "[2026-11-15 13:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]\n" +
			"steps: 10 loss: 2.3456 iter time (s): 0.123 samples/sec: 65.0", []string{"lines 10: lr=1e-05 (10 of 0)", "lines 10: loss=2.3456 (10 of 0)"}},
		{"TRL", "{'loss': '0.6931', 'rewards/accuracies': 0.5, 'epoch': 0.01}", []string{"dict 0.01: loss=0.6931 rewards/accuracies=0.5"}},
		{"torchtune", "1|10|Loss: 1.234: 10%|██████| 10/100 [00:10<00:00,  1.00s/it]", []string{"tqdm 10: loss=1.234 (10 of 100)"}},
		{"torchtitan", "[titan] 2026-11-15 13:00:00,000 - root - INFO - step: 10  loss:  8.1234  memory: 12.34GiB(13.0%)  tps: 1,234  mfu: 4.00%",
			[]string{"lines 10: loss=8.1234 mfu=4 (10 of 0)"}},
		{"PyTorch's language model example", "| epoch   1 |   200/ 2928 batches | lr 5.00 | ms/batch 12.3 | loss  7.50 | ppl  1808.04\n| end of epoch   1 | time: 12.3s | valid loss  5.5 | valid ppl   244.69",
			[]string{"lines 200: lr=5 loss=7.5 ppl=1808.04 (200 of 0)", "lines 200: valid_loss=5.5 valid_ppl=244.69"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			if diff := cmp.Diff(test.want, hear(t, nil, test.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNumbersInLines(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"step 4 loss: 1,234.5": "lines 4: loss=1234.5 (4 of 0)", "step 8 loss: 0,512": "lines 8: loss=0.512 (8 of 0)", "step 9 loss: 1.234,5": "lines 9: loss=1234.5 (9 of 0)",
		"step 9 loss: 12,5 acc: 3": "lines 9: loss=12.5 acc=3 (9 of 0)", "step 1,010/10,000 loss: 0.4": "lines 1010: loss=0.4 (1010 of 10000)",
		"step 1_020 loss: 0.3": "lines 1020: loss=0.3 (1020 of 0)", "step 5 loss=0.5,acc=0.25": "lines 5: loss=0.5 acc=0.25 (5 of 0)", "step 5, loss 0.5, acc 1": "lines 5: loss=0.5 acc=1 (5 of 0)",
		"step 6 loss: tensor(0.5, grad_fn=<NllLossBackward0>)": "lines 6: loss=0.5 (6 of 0)", "step 7 loss: np.float32(0.75)": "lines 7: loss=0.75 (7 of 0)",
		"step 7 loss=[0.25]": "lines 7: loss=0.25 (7 of 0)", "step 7 loss: 0.5%": "lines 7: loss=0.5 (7 of 0)", "step 7 loss 0.5±0.1": "lines 7: loss=0.5 (7 of 0)", "step 7 loss: -1.5e-3": "lines 7: loss=-0.0015 (7 of 0)",
	} {
		if diff := cmp.Diff([]string{want}, hear(t, nil, text)); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}

	for _, text := range []string{"step 7 loss: tensor([0.5, 0.6])", "step 7 loss=1,2,3", "step 7 loss=[0.5, 0.6]", "step 7 loss=3f2a1b9e7"} {
		if got := hear(t, nil, text); got != nil {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// TestOrdinaryLinesSayNothing checks lines that contain no metrics, steps or totals.
func TestOrdinaryLinesSayNothing(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		"epoch time: 3.2s", "epoch time: 3.2", "lr: 1e-4", "ETA: 00:12", "acc@1 75.2 (70.1)", "2026-11-15 13:00:01", "connect to 192.168.0.12:29500", "torch 2.1.0+cu118 cuda 12.1",
		"sha 1e5 commit 3f2a1b9e7", "Error code 137", "loss of connection after 3 retries", "Processed 3/10 files, error 0", "batch size 32", "Using batch_size=32 lr=0.001 epochs=10",
		"num train steps: 1000", "steps: 1000 lr: 0.1", "step size 0.1", "epochs: 100", "Epoch 5 took 12.3s", "return code 0", "warmup steps 100, total steps 1000", "accuracy threshold 0.9",
		"loss_fn 1 weight: 0.5", "loss_scale: 65536", "gradient accumulation steps = 4", "[1/4] Building CXX object", "GET /loss 12", "target loss 0.1", "max loss: 3", "early stopping patience 3/5", "11/15 13:00 error 3",
	} {
		if got := hear(t, nil, text); got != nil {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func TestBarsThatDoNotAlwaysCountEquallyFar(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"by epochs": {"Epoch 0: 100%|█| 10/10 [00:01<00:00, 5it/s, loss=1]\nEpoch 1:  50%|█| 6/12 [00:01<00:00, 5it/s, loss=0.9]\nEpoch 2:  50%|█| 4/8 [00:01<00:00, 5it/s, loss=0.7]",
			[]string{"tqdm 10: loss=1 (10 of 0)", "tqdm 16: loss=0.9 (16 of 0)", "tqdm 20: loss=0.7 (20 of 0)"}},
		"without a name": {"100%|█| 10/10 [00:01<00:00, 5it/s, loss=1]\n 50%|█| 6/12 [00:01<00:00, 5it/s, loss=0.9]", []string{"tqdm 10: loss=1 (10 of 10)", "tqdm 16: loss=0.9 (16 of 0)"}},
		"and what is told for each epoch is of its steps": {"Epochs:   0%|  | 0/3 [00:00<?, ?it/s]\rTrain: 100%|█| 10/10 [00:01<00:00, 5it/s, loss=1]\rEpochs:  33%|  | 1/3 [00:01<00:00, 5s/it, val_loss=0.5]\r",
			[]string{"tqdm 0: (0 of 3)", "tqdm 10: loss=1 (10 of 30)", "tqdm 10: val_loss=0.5 (10 of 30)"}},
	} {
		if diff := cmp.Diff(test.want, hear(t, nil, test.text)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
