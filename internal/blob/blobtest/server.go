package blobtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"trainyard/internal/cloud/cloudtest"
)

// Credentials of the servers, which each has a region of its own liking.
const (
	AccessKey = "AKIAYARD"
	SecretKey = "secret-of-a-test"
	Region    = "us-east-1"
)

// Server is a server of the S3 API that a test has started.
type Server struct {
	Name string
	URL  string

	stop func() error
}

// errAbsent says that a server is not installed on this machine.
var errAbsent = errors.New("not installed: make setup does it")

// Servers are the servers of the S3 API that set-up installs.
func Servers() []string { return []string{"moto", "versitygw"} }

// StartServer starts one of Servers. Where it is not installed, the test is skipped, and fails if CI=true. It ends
// with Stop, or with the program that started it.
func StartServer(t testing.TB, name string) *Server {
	t.Helper()

	var server *Server
	var err error

	if name == "moto" {
		server, err = startMoto()
	} else {
		server, err = startVersity()
	}

	if errors.Is(err, errAbsent) && os.Getenv("CI") != "true" {
		t.Skipf("needs %s: %v", name, err)
	}
	if err != nil {
		t.Fatalf("needs %s: %v", name, err)
	}

	return server
}

// Stop ends the server.
func (s *Server) Stop() error { return s.stop() }

func startMoto() (*Server, error) {
	server, err := cloudtest.StartMoto()
	if errors.Is(err, cloudtest.ErrNoMoto) {
		return nil, errors.Join(errAbsent, err)
	}
	if err != nil {
		return nil, err
	}

	return &Server{Name: "moto", URL: server.URL, stop: server.Stop}, nil
}

// startVersity starts versitygw on a folder, with what S3 has and files have not in a second one, because not every
// file system has room for it in attributes.
func startVersity() (*Server, error) {
	version, err := cloudtest.Pinned("tools.sh", "VERSITYGW_VERSION")
	if err != nil {
		return nil, err
	}

	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", errAbsent, err)
	}

	program := filepath.Join(cache, "trainyard", "tools", "versitygw-"+version, "versitygw")
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("%w (%w)", errAbsent, err)
	}

	root, err := os.MkdirTemp("", "versitygw-")
	if err != nil {
		return nil, err
	}

	files, attributes := filepath.Join(root, "files"), filepath.Join(root, "attributes")
	if err := errors.Join(os.Mkdir(files, 0o700), os.Mkdir(attributes, 0o700)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(root))
	}

	server, err := cloudtest.StartServer("versitygw", "/health", func(port string) *exec.Cmd {
		return exec.CommandContext(context.Background(), program, "--port", "127.0.0.1:"+port, "--access", AccessKey,
			"--secret", SecretKey, "--region", Region, "--health", "/health", "posix", "--sidecar", attributes, files)
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(root))
	}

	stop := func() error { return errors.Join(server.Stop(), os.RemoveAll(root)) }

	return &Server{Name: "versitygw", URL: server.URL, stop: stop}, nil
}

// Client returns a client of the server.
func (s *Server) Client() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(s.URL), UsePathStyle: true, Region: Region,
		Credentials: credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, ""),
	})
}

// NewBucket makes a bucket of its own for a test and returns its name.
func (s *Server) NewBucket(t testing.TB) string {
	t.Helper()

	name := "yard-" + strings.ToLower(rand.Text())
	if _, err := s.Client().CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name}); err != nil {
		t.Fatalf("create a bucket at %s: %v", s.Name, err)
	}

	return name
}
