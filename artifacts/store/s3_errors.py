"""What an S3 failure means to the person who meets it: one line, what to do, never a secret and never the server's own prose."""

from __future__ import annotations

from botocore import exceptions as boto

from artifacts.errors import StoreError

_ENDPOINT = "check AWS_ENDPOINT_URL_S3 and that the server runs (`hetrl status`)"
_KEYS = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_BY_CODE: dict[str, tuple[str, str]] = {
    "InvalidAccessKeyId": ("the server does not know this access key", _KEYS),
    "SignatureDoesNotMatch": ("the server refuses the secret", _KEYS),
    "AccessDenied": ("access denied", "check the credentials and their rights (read, write, list) on the bucket"),
    "Forbidden": ("access denied", "check the credentials and their rights (read, write, list) on the bucket"),
    "403": ("access denied", "check the credentials and their rights (read, write, list) on the bucket"),
    "ExpiredToken": ("the session token has expired", "get fresh credentials"),
    "InvalidToken": ("the session token is not valid", "get fresh credentials, or unset AWS_SESSION_TOKEN"),
    "NoSuchBucket": ("the bucket does not exist", "create it, or check its name"),
    "BucketAlreadyExists": ("the bucket belongs to somebody else", "choose another bucket name"),
    "AuthorizationHeaderMalformed": ("the region is not the bucket's", "set AWS_REGION to the bucket's region"),
    "PermanentRedirect": ("the bucket is in another region", "set AWS_REGION to the bucket's region"),
    "301": ("the bucket is in another region", "set AWS_REGION to the bucket's region"),
    "RequestTimeTooSkewed": ("this machine's clock is off", "set the clock"),
    "SlowDown": ("the server is overloaded", "try again later"),
    "ServiceUnavailable": ("the server is not available", "try again later"),
    "QuotaExceeded": ("the quota is used up", "free some space, or run `hetrl artifacts sweep`"),
}


def explain(error: Exception, *, action: str, where: str, endpoint: str) -> StoreError:
    """The ``StoreError`` for what the SDK raised while trying to ``action`` (a verb) ``where`` (an s3:// address)."""
    what, fix = _meaning(error, endpoint)
    return StoreError(f"cannot {action} {where}: {what}", fix=fix)


def code_of(error: boto.ClientError) -> tuple[int, str]:
    """HTTP status and S3 error code."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return int(status), str(error.response.get("Error", {}).get("Code", ""))


def _meaning(error: Exception, endpoint: str) -> tuple[str, str]:
    if isinstance(error, boto.ClientError):
        status, code = code_of(error)
        if code in _BY_CODE:
            return _BY_CODE[code]
        if status >= 500:
            return f"the server failed ({status} {code})", "try again; look into the server's log if it stays"
        return f"the server refused it ({status} {code})", "check that the endpoint speaks S3"
    if isinstance(error, (boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError)):
        return "no credentials", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if isinstance(error, boto.SSLError):
        return f"{endpoint} has a certificate that is not trusted", "set AWS_CA_BUNDLE to the authority's PEM file"
    if isinstance(error, (boto.ConnectTimeoutError, boto.ReadTimeoutError)):
        return f"{endpoint} did not answer in time", _ENDPOINT + "; HETRL_S3_READ_TIMEOUT_S allows more"
    if isinstance(error, boto.EndpointConnectionError):
        return f"nothing answers at {endpoint}", _ENDPOINT
    if isinstance(error, (boto.ConnectionClosedError, boto.HTTPClientError, boto.ResponseStreamingError)):
        return f"the connection to {endpoint} broke", _ENDPOINT
    if isinstance(error, (boto.InvalidRegionError, boto.NoRegionError)):
        return "the region is not valid", "set AWS_REGION"
    if isinstance(error, boto.ProfileNotFound):
        return "AWS_PROFILE names a profile that does not exist", "unset it, or set the access key"
    return f"{type(error).__name__}", "check the AWS_* variables"
