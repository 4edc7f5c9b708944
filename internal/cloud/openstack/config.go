package openstack

import (
	"cmp"
	"crypto/tls"
	"net/http"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"

	"trainyard/internal/fault"
)

// Config identifies the cloud, the credentials, and what servers are made of. The credentials are
// either an entry of a clouds.yaml or the values of the OS_ variables of the same names.
type Config struct {
	Name string // name of the provider in offers; default "openstack"

	Cloud string // entry of clouds.yaml
	File  string // path of clouds.yaml; "" for the default places of the `openstack` command

	AuthURL          string // Keystone: https://cloud.example:5000/v3
	Username         string
	Password         string
	UserDomain       string // name; default "Default"
	Project          string // name
	ProjectID        string // instead of the name
	ProjectDomain    string // name; default UserDomain
	CredentialID     string // application credential instead of user and project
	CredentialSecret string
	Interface        string   // public, internal or admin; default public
	Regions          []string // in which servers are created and listed; the first is the default
	Image            string   // name or ID; the newest of several with one name
	Network          string   // name or ID, "none", or "auto"; default auto
	SecurityGroups   []string
	KeyPair          string // for logins by people; "" for none
	ConfigDrive      bool   // pass the boot script on a disk, for clouds without a metadata service
}

// Environ returns the part of a configuration that the usual OS_ variables contain.
func Environ(get func(string) string) Config {
	c := Config{
		Cloud:            get("OS_CLOUD"),
		File:             get("OS_CLIENT_CONFIG_FILE"),
		AuthURL:          get("OS_AUTH_URL"),
		Username:         get("OS_USERNAME"),
		Password:         get("OS_PASSWORD"),
		UserDomain:       get("OS_USER_DOMAIN_NAME"),
		Project:          get("OS_PROJECT_NAME"),
		ProjectID:        get("OS_PROJECT_ID"),
		ProjectDomain:    get("OS_PROJECT_DOMAIN_NAME"),
		CredentialID:     get("OS_APPLICATION_CREDENTIAL_ID"),
		CredentialSecret: get("OS_APPLICATION_CREDENTIAL_SECRET"),
		Interface:        get("OS_INTERFACE"),
	}

	if region := get("OS_REGION_NAME"); region != "" {
		c.Regions = []string{region}
	}

	return c
}

// session returns a session for these credentials. It does not contact the cloud yet.
func (c *Config) session() (*session, error) {
	if c.Cloud != "" {
		return c.fromFile()
	}

	auth := gophercloud.AuthOptions{IdentityEndpoint: c.AuthURL, AllowReauth: true}
	switch {
	case c.AuthURL == "":
		return nil, fault.New(fault.Invalid, "openstack_config", "auth_url is required").
			WithRemedy("name an entry of clouds.yaml, or set OS_AUTH_URL to the address of Keystone")
	case c.CredentialID != "":
		auth.ApplicationCredentialID, auth.ApplicationCredentialSecret = c.CredentialID, c.CredentialSecret
	case c.Username == "" || c.Password == "":
		return nil, fault.New(fault.Invalid, "openstack_config", "credentials are required").
			WithRemedy("set an application credential, or a user name and password")
	case c.ProjectID == "" && c.Project == "":
		return nil, fault.New(fault.Invalid, "openstack_config", "project is required").WithField("project")
	default:
		auth.Username, auth.Password = c.Username, c.Password
		auth.DomainName = cmp.Or(c.UserDomain, "Default")
		auth.Scope = (&gophercloud.AuthScope{ProjectID: c.ProjectID})
		if c.ProjectID == "" {
			auth.Scope = &gophercloud.AuthScope{ProjectName: c.Project, DomainName: cmp.Or(c.ProjectDomain, auth.DomainName)}
		}
	}

	return c.start(auth, cmp.Or(c.Interface, string(gophercloud.AvailabilityPublic)), "", nil)
}

func (c *Config) fromFile() (*session, error) {
	options := []clouds.ParseOption{clouds.WithCloudName(c.Cloud)}
	if c.File != "" {
		options = append(options, clouds.WithLocations(c.File))
	}

	if c.Interface != "" {
		options = append(options, clouds.WithEndpointType(c.Interface))
	}

	auth, endpoint, secure, err := clouds.Parse(options...)
	if err != nil {
		return nil, fault.New(fault.Invalid, "openstack_config", "cloud %q: %s", c.Cloud, err).
			WithRemedy("check clouds.yaml").
			WithCause(err)
	}

	auth.AllowReauth = true

	return c.start(
		auth,
		cmp.Or(string(endpoint.Availability), string(gophercloud.AvailabilityPublic)),
		endpoint.Region,
		secure,
	)
}

func (c *Config) start(auth gophercloud.AuthOptions, access, region string, secure *tls.Config) (*session, error) {
	switch gophercloud.Availability(access) {
	case gophercloud.AvailabilityPublic, gophercloud.AvailabilityInternal, gophercloud.AvailabilityAdmin:
	default:
		return nil, fault.New(fault.Invalid, "openstack_config", "interface must be public, internal or admin, got %q",
			access).
			WithField("interface").
			WithRemedy("write interface: public, or remove it")
	}

	s := &session{auth: auth, access: gophercloud.Availability(access), region: region, turn: make(chan struct{}, 1)}

	if secure != nil {
		transport, ok := http.DefaultTransport.(*http.Transport)
		if !ok {
			return nil, fault.New(fault.Internal, "openstack_config", "http.DefaultTransport is not a *http.Transport")
		}

		transport = transport.Clone()
		transport.TLSClientConfig = secure
		s.http.Transport = transport
	}

	return s, nil
}
