package cli

import "testing"

func TestThePortOfTensorBoardIsFound(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]int{
		"": 0,
		"2026-11-17 10:00:00.1 I tensorflow/core] at http://x:1/\n":                                                               0,
		"NOTE: Using experimental fast data loading logic.\nTensorBoard 2.20.0 at http://localhost:43671/ (Press CTRL+C to quit)": 43671,
		"TensorBoard 2.20.0 at http://127.0.0.1:6006/ (Press CTRL+C to quit)\n":                                                   6006,
		"TensorBoard 2.20.0 at http://localhost:99999/ (Press CTRL+C to quit)":                                                    0,
	} {
		if got := tensorboardAt(text); got != want {
			t.Errorf("port %d, want %d in %q", got, want, text)
		}
	}
}
