// Package s3 keeps blobs in a bucket of Amazon S3, or of a server that speaks its API.
//
// It is an adapter of blob. A small blob is one request, a large one an upload in parts that becomes visible as a
// whole; the store verifies a SHA-256 of everything that it gets. The client is built by the first call, so that a
// program that only might use a bucket pays nothing for it. Every call has a deadline, and calls that fail for a
// passing reason are retried.
package s3

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"trainyard/internal/blob"
	"trainyard/internal/fault"
)

// Scheme begins the URL of a bucket.
const Scheme = "s3://"

// Config is where blobs are kept.
type Config struct {
	Bucket    string
	Prefix    string // of all keys, ends with a slash; "" for none
	Endpoint  string // of a server that speaks the S3 API; "" for Amazon's own
	PathStyle bool   // the bucket is a part of the path and not of the host name
	// Credentials are used in place of those that the environment and the files in ~/.aws give.
	Credentials sdk.CredentialsProvider
	// Region is used in place of the one that the environment and the files in ~/.aws give.
	Region string

	// timeouts may be shorter in tests.
	timeouts timeouts
}

// timeouts bound how long calls take.
type timeouts struct {
	call time.Duration // a call that carries no content, with its retries; reading content without getting any
	part time.Duration // sending one part, with its retries
}

// defaultTimeouts let slow lines through: a part of 8 MiB in two minutes is 70 kB/s.
func defaultTimeouts() timeouts { return timeouts{call: 30 * time.Second, part: 2 * time.Minute} }

// maxAttempts is how often a call is tried, and maxBackoff how long is waited in between.
const (
	maxAttempts = 4
	maxBackoff  = 5 * time.Second
)

// defaultRegion is that of servers other than Amazon's, most of which do not care.
const defaultRegion = "us-east-1"

// Store keeps blobs in a bucket.
type Store struct {
	cfg     Config
	connect func() (*connection, error)
}

var (
	_ blob.Store   = (*Store)(nil)
	_ blob.Signer  = (*Store)(nil)
	_ blob.Cleaner = (*Store)(nil)
)

// connection is what the first call builds.
type connection struct {
	api    *s3.Client
	signer *s3.PresignClient
}

// ParseURL reads where blobs are kept from s3://bucket/prefix.
func ParseURL(text string) (Config, error) {
	bad := func() error {
		return fault.New(fault.Invalid, "bad_bucket", "must be s3://BUCKET or s3://BUCKET/PREFIX, got %q", text)
	}

	rest, ok := strings.CutPrefix(text, Scheme)
	if !ok {
		return Config{}, bad()
	}

	bucket, prefix, _ := strings.Cut(rest, "/")
	prefix = strings.TrimSuffix(prefix, "/")
	if bucket == "" || strings.ContainsAny(bucket, "@:?#") || prefix != "" && blob.CheckName(prefix) != nil {
		return Config{}, bad()
	}

	if prefix != "" {
		prefix += "/"
	}

	return Config{Bucket: bucket, Prefix: prefix}, nil
}

// New returns a store in a bucket. It asks nothing of it yet.
func New(cfg Config) (*Store, error) {
	if u, err := url.Parse(cfg.Endpoint); cfg.Endpoint != "" &&
		(err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return nil, fault.New(fault.Invalid, "bad_endpoint", "must be a URL such as https://s3.example.org, got %q",
			cfg.Endpoint)
	}

	if cfg.timeouts == (timeouts{}) {
		cfg.timeouts = defaultTimeouts()
	}

	s := &Store{cfg: cfg}
	s.connect = sync.OnceValues(s.newConnection)

	return s, nil
}

func (s *Store) newConnection() (*connection, error) {
	transport := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = 64
		t.ResponseHeaderTimeout = s.cfg.timeouts.call / 2 // leaves time for a second try
	})
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(transport),
		config.WithRetryer(func() sdk.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) {
				o.MaxAttempts, o.MaxBackoff = maxAttempts, maxBackoff
			})
		}),
		// Checksums are asked for by name where they are wanted.
		config.WithRequestChecksumCalculation(sdk.RequestChecksumCalculationWhenRequired),
		config.WithResponseChecksumValidation(sdk.ResponseChecksumValidationWhenRequired),
	}

	if s.cfg.Credentials != nil {
		options = append(options, config.WithCredentialsProvider(s.cfg.Credentials))
	}

	if s.cfg.Region != "" {
		options = append(options, config.WithRegion(s.cfg.Region))
	}

	base, err := config.LoadDefaultConfig(context.Background(), options...)
	if err != nil {
		return nil, fault.New(fault.Invalid, "aws_config", "cannot load the AWS configuration: %v", err).
			WithRemedy("check AWS_PROFILE and the files in ~/.aws").WithCause(err)
	}

	if base.Region == "" && s.cfg.Endpoint != "" {
		base.Region = defaultRegion
	}

	client := s3.NewFromConfig(base, func(o *s3.Options) {
		o.UsePathStyle = s.cfg.PathStyle
		o.DisableLogOutputChecksumValidationSkipped = true // a blob that was put in parts has no checksum of the whole

		if s.cfg.Endpoint != "" {
			o.BaseEndpoint = sdk.String(s.cfg.Endpoint)
		}
	})

	// Headers stay headers: a server that does not look for the checksum in the URL would store anything.
	plain := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableHeaderHoisting, o.DisableURIPathEscaping = true, true })

	return &connection{
		api:    client,
		signer: s3.NewPresignClient(client, func(o *s3.PresignOptions) { o.Presigner = plain }),
	}, nil
}

// begin returns the connection and the key of a blob.
func (s *Store) begin(name string) (*connection, *string, error) {
	if err := blob.CheckName(name); err != nil {
		return nil, nil, err
	}

	c, err := s.connect()

	return c, sdk.String(s.cfg.Prefix + name), err
}

// Check finds out whether the bucket can be used. It is fault.Invalid if it cannot as things are set, and
// fault.Unavailable if it might later.
func (s *Store) Check(ctx context.Context) error {
	c, err := s.connect()
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, s.cfg.timeouts.call)
	defer cancel()

	_, err = c.api.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket: &s.cfg.Bucket, Prefix: &s.cfg.Prefix, MaxKeys: sdk.Int32(1),
	})
	if err == nil {
		return nil
	}

	if remedy, known := mistakes[codeOf(err)]; known {
		return fault.New(fault.Invalid, "bad_bucket", "cannot use the bucket %s: %s", s.cfg.Bucket, codeOf(err)).
			WithRemedy("%s", remedy).WithCause(err)
	}

	return s.unavailable(ctx, "list", "blobs", err)
}

// Stat describes a blob.
func (s *Store) Stat(ctx context.Context, name string) (blob.Info, error) {
	c, key, err := s.begin(name)
	if err != nil {
		return blob.Info{}, err
	}

	ctx, cancel := context.WithTimeout(ctx, s.cfg.timeouts.call)
	defer cancel()

	out, err := c.api.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.cfg.Bucket, Key: key})
	if err != nil {
		return blob.Info{}, s.translate(ctx, "look for", name, err)
	}

	return blob.Info{Name: name, Size: sdk.ToInt64(out.ContentLength), Stored: sdk.ToTime(out.LastModified)}, nil
}

// Has reports whether there is a blob of this name.
func (s *Store) Has(ctx context.Context, name string) (bool, error) {
	_, err := s.Stat(ctx, name)
	if fault.KindOf(err) == fault.NotFound {
		return false, nil
	}

	return err == nil, err
}

// Delete removes a blob.
func (s *Store) Delete(ctx context.Context, name string) error {
	c, key, err := s.begin(name)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, s.cfg.timeouts.call)
	defer cancel()

	_, err = c.api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.cfg.Bucket, Key: key})
	if codeOf(err) == codeNoKey {
		return nil
	}
	if err != nil {
		return s.translate(ctx, "remove", name, err)
	}

	return nil
}

// List describes the blobs whose names begin with prefix.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		if err := blob.CheckPrefix(prefix); err != nil {
			yield(blob.Info{}, err)
			return
		}

		c, err := s.connect()
		if err != nil {
			yield(blob.Info{}, err)
			return
		}

		pages := s3.NewListObjectsV2Paginator(c.api, &s3.ListObjectsV2Input{
			Bucket: &s.cfg.Bucket, Prefix: sdk.String(s.cfg.Prefix + prefix),
		})
		for pages.HasMorePages() {
			found, err := s.nextPage(ctx, pages)
			if err != nil {
				yield(blob.Info{}, s.translate(ctx, "list", prefix, err))
				return
			}

			for i := range found {
				info := blob.Info{
					Name:   strings.TrimPrefix(sdk.ToString(found[i].Key), s.cfg.Prefix),
					Size:   sdk.ToInt64(found[i].Size),
					Stored: sdk.ToTime(found[i].LastModified),
				}
				if !yield(info, nil) {
					return
				}
			}
		}
	}
}

func (s *Store) nextPage(ctx context.Context, pages *s3.ListObjectsV2Paginator) ([]types.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.timeouts.call)
	defer cancel()

	page, err := pages.NextPage(ctx)
	if err != nil {
		return nil, err
	}

	return page.Contents, nil
}

// SignPut allows to put one blob.
func (s *Store) SignPut(
	ctx context.Context, name string, size int64, sha256 string, ttl time.Duration,
) (blob.Request, error) {
	c, key, err := s.begin(name)
	if err != nil {
		return blob.Request{}, err
	}

	sum, err := checksum(sha256)
	if err != nil {
		return blob.Request{}, err
	}

	signed, err := c.signer.PresignPutObject(ctx, &s3.PutObjectInput{
		Bucket: &s.cfg.Bucket, Key: key, ContentLength: &size,
		ChecksumAlgorithm: types.ChecksumAlgorithmSha256, ChecksumSHA256: &sum,
	}, s3.WithPresignExpires(ttl))
	if err != nil {
		return blob.Request{}, s.translate(ctx, "sign a request for", name, err)
	}

	return request(signed), nil
}

// SignGet allows to get one blob.
func (s *Store) SignGet(ctx context.Context, name string, ttl time.Duration) (blob.Request, error) {
	c, key, err := s.begin(name)
	if err != nil {
		return blob.Request{}, err
	}

	signed, err := c.signer.PresignGetObject(
		ctx, &s3.GetObjectInput{Bucket: &s.cfg.Bucket, Key: key}, s3.WithPresignExpires(ttl),
	)
	if err != nil {
		return blob.Request{}, s.translate(ctx, "sign a request for", name, err)
	}

	return request(signed), nil
}

// request is a signed request as the port has it.
func request(signed *v4.PresignedHTTPRequest) blob.Request {
	out := blob.Request{URL: signed.URL, Header: map[string]string{}}
	for name := range signed.SignedHeader {
		if canonical := http.CanonicalHeaderKey(name); canonical != "Host" && canonical != "Content-Length" {
			out.Header[canonical] = signed.SignedHeader.Get(name)
		}
	}

	return out
}

// Get opens a blob for reading.
func (s *Store) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	body, _, err := s.open(ctx, name, &s3.GetObjectInput{ChecksumMode: types.ChecksumModeEnabled})
	if err != nil {
		return nil, err
	}

	return body, nil
}
