"""The wrapping of data keys by AWS KMS, with the purpose as encryption context."""

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from quitclaim.domain.errors import KeyUnavailableError

if TYPE_CHECKING:
    from mypy_boto3_kms import KMSClient


class KmsKeyWrapper:
    """
    Wraps and unwraps under one KMS key.

    The context is authenticated by KMS and stands in its audit log, so it holds the purpose and nothing else; the
    policies of the functions are conditions on it. Naming the key on decrypt refuses what another key wrapped.
    """

    def __init__(self, client: "KMSClient", key_arn: str) -> None:
        self._client = client
        self._key_arn = key_arn

    def generate_data_key(self, purpose: str) -> tuple[bytes, bytes]:
        """A fresh 256-bit key, plain and wrapped. Raises `KeyUnavailableError`."""
        try:
            answer = self._client.generate_data_key(
                KeyId=self._key_arn, KeySpec="AES_256", EncryptionContext={"purpose": purpose}
            )
        except (ClientError, BotoCoreError) as fault:
            raise _unavailable("make", purpose, fault) from fault
        return answer["Plaintext"], answer["CiphertextBlob"]

    def wrapped_data_key(self, purpose: str) -> bytes:
        """A fresh 256-bit key, wrapped only: whoever asks for it never sees it. Raises `KeyUnavailableError`."""
        try:
            answer = self._client.generate_data_key_without_plaintext(
                KeyId=self._key_arn, KeySpec="AES_256", EncryptionContext={"purpose": purpose}
            )
        except (ClientError, BotoCoreError) as fault:
            raise _unavailable("make", purpose, fault) from fault
        return answer["CiphertextBlob"]

    def decrypt(self, wrapped: bytes, purpose: str) -> bytes:
        """The key that was wrapped for *purpose*. Raises `KeyUnavailableError`, for another purpose's key too."""
        try:
            answer = self._client.decrypt(
                KeyId=self._key_arn, CiphertextBlob=wrapped, EncryptionContext={"purpose": purpose}
            )
        except (ClientError, BotoCoreError) as fault:
            raise _unavailable("open", purpose, fault) from fault
        return answer["Plaintext"]


def _unavailable(what: str, purpose: str, fault: ClientError | BotoCoreError) -> KeyUnavailableError:
    """
    Every fault of KMS means the same to the ring: denied, disabled, throttled, unreachable, or a wrapped key that is
    not ours. Nothing is lost by waiting, and everything could be by taking it for broken ciphertext (D-5).
    """
    code = fault.response.get("Error", {}).get("Code", "") if isinstance(fault, ClientError) else type(fault).__name__
    return KeyUnavailableError(f"KMS did not {what} a data key of purpose {purpose}: {code}")
