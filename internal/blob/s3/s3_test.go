package s3

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"trainyard/internal/blob"
	"trainyard/internal/blob/blobtest"
	"trainyard/internal/fault"
)

// servers are started by the first test that needs them and shared by all: buckets keep apart.
var servers struct {
	mu   sync.Mutex
	list map[string]*blobtest.Server
}

func TestMain(m *testing.M) {
	code := m.Run()

	for _, server := range servers.list {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}

	os.Exit(code)
}

func server(t *testing.T, name string) *blobtest.Server {
	t.Helper()
	servers.mu.Lock()
	defer servers.mu.Unlock()

	if servers.list[name] == nil {
		if servers.list == nil {
			servers.list = map[string]*blobtest.Server{}
		}

		servers.list[name] = blobtest.StartServer(t, name)
	}

	return servers.list[name]
}

// open returns a store in a bucket of its own.
func open(t *testing.T, s *blobtest.Server, change ...func(*Config)) *Store {
	t.Helper()
	cfg := Config{
		Bucket: s.NewBucket(t), Prefix: "lab/yard/", Endpoint: s.URL, PathStyle: true, Region: blobtest.Region,
		Credentials: credentials.NewStaticCredentialsProvider(blobtest.AccessKey, blobtest.SecretKey, ""),
	}
	for _, c := range change {
		c(&cfg)
	}

	store, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	return store
}

func TestABucketKeepsTheContract(t *testing.T) {
	t.Parallel()

	for _, name := range blobtest.Servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t, name)
			bucket := func(t *testing.T) blob.Store {
				t.Helper()
				return open(t, s)
			}

			blobtest.Run(t, bucket)
			blobtest.RunSigned(t, name != "moto", bucket) // moto checks neither signatures nor checksums
		})
	}
}

func TestStoresWithDifferentPrefixesShareABucket(t *testing.T) {
	t.Parallel()
	s := server(t, "versitygw")
	one := open(t, s)
	other := open(t, s, func(c *Config) { c.Bucket, c.Prefix = one.cfg.Bucket, "lab/" })
	none := open(t, s, func(c *Config) { c.Bucket, c.Prefix = one.cfg.Bucket, "" })
	put(t, one, "logs/a", "x")

	if names := blobtest.Names(t, other, "yard/"); len(names) != 1 || names[0] != "yard/logs/a" {
		t.Errorf("below lab/ there is %v", names)
	}

	if names := blobtest.Names(t, other, "logs/"); len(names) != 0 {
		t.Errorf("the other store has %v", names)
	}

	if names := blobtest.Names(t, none, ""); len(names) != 1 || names[0] != "lab/yard/logs/a" {
		t.Errorf("the bucket has %v", names)
	}
}

func TestABucketIsReadFromItsURL(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]Config{
		"s3://yard":           {Bucket: "yard"},
		"s3://yard/":          {Bucket: "yard"},
		"s3://yard/lab":       {Bucket: "yard", Prefix: "lab/"},
		"s3://yard/lab/team/": {Bucket: "yard", Prefix: "lab/team/"},
		"s3://":               {},
		"s3:///lab":           {},
		"s3://yard//lab":      {},
		"s3://yard/../lab":    {},
		"s3://key@yard":       {},
		"s3://yard:80/x":      {},
		"yard/lab":            {},
		"http://yard":         {},
	} {
		got, err := ParseURL(text)
		if got != want || (err != nil) != (want == Config{}) {
			t.Errorf("%s = %+v, %v; want %+v", text, got, err, want)
		}
	}

	for _, endpoint := range []string{"s3.example.org", "ftp://x", "http://", ":"} {
		if _, err := New(Config{Bucket: "yard", Endpoint: endpoint}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("endpoint %q: %v, want it refused", endpoint, err)
		}
	}
}

// A setting that can never work is told apart from a server that is down.
func TestCheckTellsMistakesFromOutages(t *testing.T) {
	t.Parallel()
	s := server(t, "versitygw")

	if err := open(t, s).Check(t.Context()); err != nil {
		t.Errorf("a bucket that is fine: %v", err)
	}

	for what, tt := range map[string]struct {
		change func(*Config)
		want   fault.Kind
	}{
		"no such bucket": {func(c *Config) { c.Bucket = "another" }, fault.Invalid},
		"wrong secret": {func(c *Config) {
			c.Credentials = credentials.NewStaticCredentialsProvider(blobtest.AccessKey, "wrong", "")
		}, fault.Invalid},
		"nobody listens": {func(c *Config) { c.Endpoint = "http://127.0.0.1:1" }, fault.Unavailable},
	} {
		err := open(t, s, tt.change).Check(t.Context())
		if fault.KindOf(err) != tt.want {
			t.Errorf("%s: %v, want %s", what, err, tt.want)
		}

		var f *fault.Error
		if errors.As(err, &f) && tt.want == fault.Invalid && f.Remedy == "" {
			t.Errorf("%s: %v has no remedy", what, err)
		}
	}
}
