package httpapi

// Headers that servers of the yard send to each other and to clients.
const (
	// HeaderNode names the node whose request a standby forwards. Only a server may set it.
	HeaderNode = "Trainyard-Node"
	// HeaderNodeCertificate is the certificate that node has shown, in base64. Only a server may set it.
	HeaderNodeCertificate = "Trainyard-Node-Certificate"
	// HeaderForwarded names the server that forwards a request. One that does not lead refuses such a
	// request, so that requests never travel in circles.
	HeaderForwarded = "Trainyard-Forwarded"
)
