package aws

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/smithy-go"

	"trainyard/internal/cloud"
	"trainyard/internal/fault"
)

// meaning is what an error code of the API says.
type meaning struct {
	kind   fault.Kind
	code   string
	remedy string
}

//nolint:gosec // advice about credentials, not credentials
const (
	quotaRemedy  = "request a higher quota under Service Quotas, or use another region"
	rightsRemedy = "the role needs ec2:RunInstances, TerminateInstances, CreateTags, CreateSecurityGroup and " +
		"Describe*, and iam:PassRole where machines get a role"
	credentialsRemedy = "check the AWS credentials in the profile or the environment"
)

// meanings has the codes that say for certain that nothing was done. Codes that are not in
// it, and failures on Amazon's side, leave it open. A shortage of machines is answered
// with status 500, so codes decide and statuses do not.
var meanings = map[string]meaning{
	"InsufficientInstanceCapacity":         {fault.OverLimit, cloud.CodeCapacity, ""},
	"InsufficientHostCapacity":             {fault.OverLimit, cloud.CodeCapacity, ""},
	"InsufficientReservedInstanceCapacity": {fault.OverLimit, cloud.CodeCapacity, ""},
	"InsufficientCapacityOnHost":           {fault.OverLimit, cloud.CodeCapacity, ""},
	"UnfulfillableCapacity":                {fault.OverLimit, cloud.CodeCapacity, ""},
	"InsufficientFreeAddressesInSubnet": {
		fault.OverLimit,
		cloud.CodeCapacity,
		"configure a larger subnet, or one in another zone",
	},

	"SpotMaxPriceTooLow": {fault.OverLimit, cloud.CodePrice, ""},

	"InstanceLimitExceeded":            {fault.OverLimit, cloud.CodeQuota, quotaRemedy},
	"VcpuLimitExceeded":                {fault.OverLimit, cloud.CodeQuota, quotaRemedy},
	"MaxSpotInstanceCountExceeded":     {fault.OverLimit, cloud.CodeQuota, quotaRemedy},
	"VolumeLimitExceeded":              {fault.OverLimit, cloud.CodeQuota, quotaRemedy},
	"AddressLimitExceeded":             {fault.OverLimit, cloud.CodeQuota, quotaRemedy},
	"NetworkInterfaceLimitExceeded":    {fault.OverLimit, cloud.CodeQuota, quotaRemedy},
	"SecurityGroupLimitExceeded":       {fault.OverLimit, cloud.CodeQuota, quotaRemedy},
	"SecurityGroupsPerVpcLimitReached": {fault.OverLimit, cloud.CodeQuota, quotaRemedy},
	"PendingVerification": {
		fault.OverLimit,
		cloud.CodeQuota,
		"AWS is still verifying the account; this can take several hours",
	},

	"UnauthorizedOperation":       {fault.Denied, "denied", rightsRemedy},
	"AccessDenied":                {fault.Denied, "denied", rightsRemedy},
	"AccessDeniedException":       {fault.Denied, "denied", rightsRemedy},
	"OptInRequired":               {fault.Denied, "denied", "enable this service or region for the account"},
	"Blocked":                     {fault.Denied, "denied", "contact AWS support: the account is blocked"},
	"AuthFailure":                 {fault.Denied, "denied", credentialsRemedy},
	"InvalidClientTokenId":        {fault.Denied, "denied", credentialsRemedy},
	"UnrecognizedClientException": {fault.Denied, "denied", credentialsRemedy},
	"SignatureDoesNotMatch":       {fault.Denied, "denied", credentialsRemedy},
	"IncompleteSignature":         {fault.Denied, "denied", credentialsRemedy},
	"MissingAuthenticationToken":  {fault.Denied, "denied", credentialsRemedy},
	"ExpiredToken":                {fault.Denied, "denied", credentialsRemedy},
	"ExpiredTokenException":       {fault.Denied, "denied", credentialsRemedy},
	"RequestExpired":              {fault.Denied, "denied", "set the clock of this machine: it differs from that of AWS"},

	"Unsupported": {
		fault.Invalid,
		"bad_offer",
		"remove the offer: this zone or region does not have the instance type",
	},
	"UnsupportedOperation": {fault.Invalid, "bad_offer", ""},
	"MissingParameter":     {fault.Invalid, "bad_offer", ""},
	"MissingInput":         {fault.Invalid, "bad_offer", ""},
	"MalformedQueryString": {fault.Invalid, "bad_offer", ""},
	"ValidationError":      {fault.Invalid, "bad_offer", ""},
	"VPCIdNotSpecified":    {fault.Invalid, "bad_offer", "configure a subnet: the region has no default VPC"},
	"DefaultVpcDoesNotExist": {
		fault.Invalid, "bad_offer", "configure a subnet: the region has no default VPC",
	},

	"RequestLimitExceeded":  {fault.Unavailable, "provider_busy", ""},
	"Throttling":            {fault.Unavailable, "provider_busy", ""},
	"ThrottlingException":   {fault.Unavailable, "provider_busy", ""},
	"EC2ThrottledException": {fault.Unavailable, "provider_busy", ""},
}

// translate makes an error of the SDK one of ours: what was being done, and what is known
// of its outcome.
func translate(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}

	var ours *fault.Error
	if errors.As(err, &ours) {
		return err
	}

	var api smithy.APIError
	if !errors.As(err, &api) {
		return unclear(ctx, doing, err)
	}

	m, known := meanings[api.ErrorCode()]
	switch {
	case known:
	case strings.HasSuffix(api.ErrorCode(), ".NotFound") && strings.HasPrefix(api.ErrorCode(), "InvalidInstanceID"):
		m = meaning{fault.NotFound, "no_such_machine", ""}
	case strings.HasPrefix(api.ErrorCode(), "Invalid"):
		m = meaning{fault.Invalid, "bad_offer", ""}
	default:
		return unclear(ctx, doing, err)
	}

	// What follows is a kilobyte that only Amazon can read.
	message, _, _ := strings.Cut(api.ErrorMessage(), " Encoded authorization failure message")
	f := fault.New(m.kind, m.code, "%s: %s: %s", doing, api.ErrorCode(), strings.TrimSuffix(message, "."))
	if m.remedy != "" {
		f = f.WithRemedy("%s", m.remedy)
	}

	return f.WithCause(err)
}

// unclear is an error after which it is unknown whether the call was carried out. Its
// cause is found by errors.Is to be the end of the context, where it was that.
func unclear(ctx context.Context, doing string, err error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = errors.Join(ended, err)
	}

	return fault.New(fault.Unavailable, "provider_unreachable", "%s: %v", doing, err).WithCause(err)
}

// codeOf returns the API's code of an error, "" if it has none.
func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}

	return ""
}
