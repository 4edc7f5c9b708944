package job

import (
	"strings"
	"testing"
)

func TestNamesOfImages(t *testing.T) {
	t.Parallel()

	digest := "sha256:" + strings.Repeat("0a", 32)

	for _, name := range []string{
		"python", "pytorch/pytorch:2.6.0", "ghcr.io/org/team/name:v1.2-rc_3", "localhost:5000/a", "127.0.0.1:5000/a/b:latest",
		"python@" + digest, "nvcr.io/nvidia/pytorch:25.01-py3@" + digest, "[::1]:5000/a",
	} {
		if !ImageName(name) {
			t.Errorf("%q is refused", name)
		}
	}

	for _, name := range []string{
		"", " ", "a b", "a:", "a:b:c", "a:-1", "/a", "a/", "a//b", "-a", "Python", "org/Name", "a@sha256:12", "a@md5:" + digest,
		"--privileged", "a\nb", "a;b", "https://ghcr.io/org/name", "a:" + strings.Repeat("t", 129), strings.Repeat("a", 501),
	} {
		if ImageName(name) {
			t.Errorf("%q is taken", name)
		}
	}
}
