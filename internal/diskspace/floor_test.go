package diskspace_test

import (
	"testing"

	"trainyard/internal/diskspace"
	"trainyard/internal/job"
)

func TestTheLargerOfSizeAndShareMustBeFree(t *testing.T) {
	t.Parallel()

	for floor, want := range map[diskspace.Floor]job.Bytes{
		{}: 0, {Size: 100}: 100, {Share: 0.5}: 500, {Size: 100, Share: 0.05}: 100, {Size: 100, Share: 0.2}: 200,
	} {
		if got, spare := floor.Of(1000), floor.WithSpare(1000); got != want || spare != 2*want {
			t.Errorf("%+v is %d, and %d with spare", floor, got, spare)
		}
	}
}
