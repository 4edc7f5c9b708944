package s3

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"

	"github.com/aws/smithy-go"

	"trainyard/internal/blob"
	"trainyard/internal/fault"
)

// Codes of the API that say something about a blob.
const (
	codeNoKey    = "NoSuchKey"
	codeNotFound = "NotFound" // of a request that has no body to say more
	codeBadRange = "InvalidRange"
	codeNoUpload = "NoSuchUpload"
)

//nolint:gosec // advice about credentials, not credentials
const (
	credentialsRemedy = "check the AWS credentials in the environment or in ~/.aws"
	rightsRemedy      = "the role needs s3:ListBucket, GetObject, PutObject, DeleteObject and AbortMultipartUpload"
)

// mistakes are the codes that tell of a wrong setting, with what to do about each.
var mistakes = map[string]string{
	"NoSuchBucket":          "create the bucket, or name another one with --blobs",
	"PermanentRedirect":     "set AWS_REGION to the region of the bucket",
	"AccessDenied":          rightsRemedy,
	"AllAccessDisabled":     rightsRemedy,
	"InvalidAccessKeyId":    credentialsRemedy,
	"SignatureDoesNotMatch": credentialsRemedy,
	"InvalidBucketName":     "name another bucket with --blobs",
}

// translate makes an error of the SDK one of ours.
func (s *Store) translate(ctx context.Context, doing, name string, err error) error {
	switch codeOf(err) {
	case codeNoKey, codeNotFound:
		return blob.NotFound(name)
	default:
		return s.unavailable(ctx, doing, name, err)
	}
}

// unavailable is an error after which the caller may try again. It says what the store says, for an operator reads it
// in the log, and its cause is found by errors.Is to be the end of the context where it was that.
func (s *Store) unavailable(ctx context.Context, doing, name string, err error) error {
	if ended := context.Cause(ctx); ended != nil && !errors.Is(err, ended) {
		err = errors.Join(ended, err)
	}

	f := fault.New(fault.Unavailable, "blob_store", "cannot %s %s in the blob store", doing, name).WithCause(err)
	if remedy, known := mistakes[codeOf(err)]; known {
		f = f.WithRemedy("bucket %s: %s; %s", s.cfg.Bucket, codeOf(err), remedy)
	}

	return f
}

// codeOf returns the API's code of an error, "" if it has none.
func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}

	return ""
}

// checksum returns a SHA-256 in the form of the API.
func checksum(digest string) (string, error) {
	raw, err := hex.DecodeString(digest)
	if err != nil || len(raw) != 32 {
		return "", fault.New(fault.Invalid, "bad_digest", "digest must be a SHA-256 in hex, got %q", digest)
	}

	return base64.StdEncoding.EncodeToString(raw), nil
}
