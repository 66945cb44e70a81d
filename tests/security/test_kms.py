"""KMS as it answers (moto), and every fault of it as one error."""

from collections.abc import Iterator

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.stub import Stubber
from moto import mock_aws

from quitclaim.domain.errors import KeyUnavailableError
from quitclaim.security.kms import KmsKeyWrapper

NO_RETRIES = Config(retries={"total_max_attempts": 1})


@pytest.fixture
def kms(monkeypatch) -> Iterator[object]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        yield boto3.client("kms", region_name="eu-west-1", config=NO_RETRIES)


@pytest.mark.rule("S-17")
def test_a_wrapped_key_opens_for_its_purpose_only(kms):
    """The purpose is the encryption context: KMS refuses another one, and that is key trouble (S-17)."""
    wrapper = KmsKeyWrapper(kms, kms.create_key()["KeyMetadata"]["Arn"])

    plain, wrapped = wrapper.generate_data_key("use")

    assert len(plain) == 32
    assert plain not in wrapped
    assert wrapper.decrypt(wrapped, "use") == plain
    with pytest.raises(KeyUnavailableError):
        wrapper.decrypt(wrapped, "revoke")


def test_a_key_that_is_not_ours_is_unavailable(kms):
    """Nothing of this reads as broken ciphertext (D-5)."""
    arn = kms.create_key()["KeyMetadata"]["Arn"]

    with pytest.raises(KeyUnavailableError):
        KmsKeyWrapper(kms, arn).decrypt(b"garbage that is long enough to be looked at, and no key at all", "use")
    with pytest.raises(KeyUnavailableError):
        KmsKeyWrapper(kms, "arn:aws:kms:eu-west-1:123456789012:key/nowhere").generate_data_key("use")


@pytest.mark.parametrize(
    "code", ["AccessDeniedException", "ThrottlingException", "KMSInternalException", "DisabledException"]
)
def test_every_refusal_of_kms_is_key_trouble(kms, code):
    """Denied, throttled, broken: one error, which names the code and the purpose."""
    with Stubber(kms) as stub:
        stub.add_client_error("decrypt", service_error_code=code, service_message="canary")
        with pytest.raises(KeyUnavailableError, match=code) as error:
            KmsKeyWrapper(kms, "arn").decrypt(b"wrapped", "use")

    assert "canary" not in str(error.value)
    assert isinstance(error.value.__cause__, ClientError)


def test_kms_that_cannot_be_reached_is_key_trouble():
    """A network fault is no verdict either."""

    class Unreachable:
        def decrypt(self, **_: object) -> None:
            raise EndpointConnectionError(endpoint_url="https://kms")

    with pytest.raises(KeyUnavailableError, match="EndpointConnectionError"):
        KmsKeyWrapper(Unreachable(), "arn").decrypt(b"wrapped", "use")  # type: ignore[arg-type]
